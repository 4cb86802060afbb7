//! Arguments of `catchment control`.
use super::{PageArgs, Security};
use catchment::session::io::Address;
use catchment_controller::config::{parse_queue, parse_rate};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Where a controller listens, if nothing else is said.
pub(super) const ADDRESS: &str = "127.0.0.1:7118";

const AFTER_HELP: &str = "\
  catchment control --bottleneck 20Gbit
  catchment send --controller 127.0.0.1:7118 --priority cam0=urgent --input synthetic --device cam0 127.0.0.1:7117
  catchment control status --json
  catchment control capacity bottleneck 15Gbit --admin unix:control.sock

SIGHUP reads the file again: capacities of links and [[allow]] change at once, and nothing granted is lost; a
file that cannot be used changes nothing.";

/// Grant sources the right to send over a link that they share, so that urgent frames come in time and nothing
/// is lost
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct ControlArgs {
    /// What to ask a controller that runs; without it one begins
    #[command(subcommand)]
    pub(crate) what: Option<ControlWhat>,
    /// What the one link carries that all sources share, such as 20Gbit or 500Mbit: payload, without headers
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "config")]
    pub(crate) bottleneck: Option<u64>,
    /// What waits before that link at most, such as 1MiB: sources send no more at once, where they were late, than half of it
    /// takes [default: what goes in 1 ms, or 64 KiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_queue, requires = "bottleneck")]
    pub(crate) queue: Option<u64>,
    /// File with links, paths, classes, and who may do what (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where sources register: HOST:PORT; grants come by UDP from the same port [default: 127.0.0.1:7118, or as
    /// the file says]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<Address>,
    /// Where settings are changed while it runs, as JSON over HTTP: unix:PATH, for this user; or HOST:PORT, with TLS, for
    /// certificates that the file calls admin [default: as the file says, or nowhere]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<Address>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) security: Security,
    /// Write JSON lines: a status each second
    #[arg(long)]
    pub(crate) json: bool,
    /// End when stdin closes: the process that started this one is gone
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

/// What to ask a controller that runs.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ControlWhat {
    /// Show links, grants, and what waits
    Status(ControlStatusArgs),
    /// Show them each second, until Ctrl-C
    Top(ControlTopArgs),
    /// Say what a link carries from now on; what is granted stands
    Capacity(ControlCapacityArgs),
}

/// The controller that is asked
#[derive(Debug, Clone, Args)]
pub(crate) struct ControlTopArgs {
    /// The controller: HOST:PORT
    #[arg(value_name = "ADDR", default_value = ADDRESS)]
    pub(crate) controller: Address,
    #[command(flatten)]
    pub(crate) security: Security,
    /// Write JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what a link carries from now on
#[derive(Debug, Clone, Args)]
pub(crate) struct ControlCapacityArgs {
    /// The name of the link; the one of --bottleneck is called bottleneck
    pub(crate) link: String,
    /// What it carries, such as 15Gbit: payload, without headers
    #[arg(value_name = "RATE", value_parser = parse_rate)]
    pub(crate) capacity: u64,
    /// Where the controller lets settings be changed: unix:PATH or HOST:PORT
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Address,
    #[command(flatten)]
    pub(crate) security: Security,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show links, grants, and what waits
#[derive(Debug, Clone, Args)]
pub(crate) struct ControlStatusArgs {
    #[command(flatten)]
    pub(crate) of: ControlTopArgs,
    /// Write metrics as Prometheus reads them
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}

/// Returns where a controller listens, if nothing else is said.
pub(crate) fn controller_address() -> Address {
    ADDRESS.parse().expect("an address of this program")
}
