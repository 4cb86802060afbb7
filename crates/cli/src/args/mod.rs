//! The command line.
mod agent;
mod bench;
mod cert;
mod collect;
mod control;
mod demo;
mod examine;
mod kv;
mod page;
mod per_input;
mod providers;
mod send;
mod tunnel;
mod values;

pub(crate) use agent::{
    AgentArgs, AgentCommand, AgentExplainArgs, AgentMode, AgentStatusArgs, AgentTopArgs, PeerFiles,
};
pub use bench::BenchArgs;
pub(crate) use bench::{
    Bench, Measuring, ServerArgs, ServerAt, TestArgs, TransferArgs, own_server,
};
pub(crate) use cert::{CertArgs, ChecksumsArgs};
pub(crate) use collect::{CollectArgs, SinkKind};
pub(crate) use control::{
    ControlArgs, ControlCapacityArgs, ControlStatusArgs, ControlTopArgs, ControlWhat,
    controller_address,
};
pub(crate) use demo::DemoArgs;
pub(crate) use examine::{
    DevicesArgs, DoctorArgs, ExplainArgs, ExplainStreamArgs, ExplainWhat, There,
};
pub(crate) use kv::{
    Kv, KvAccess, KvArgs, KvBenchArgs, KvGetArgs, KvPutArgs, KvServeArgs, KvSided,
};
pub(crate) use page::PageArgs;
pub(crate) use per_input::InputArgs;
pub(crate) use providers::{DeviceArgs, ProviderArgs};
pub(crate) use send::SendArgs;
pub(crate) use tunnel::{TunnelArgs, TunnelCommand, TunnelEndArgs, TunnelServeArgs};
pub(crate) use values::Rate;

use catchment::session::tls::TlsFiles;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, nothing lost
  1  frames were lost or not delivered, or the program failed; doctor: there is a problem
  2  the arguments are wrong
  3  the collector (bench: the server) cannot be reached, or it refuses; explain: there is no path
  4  an input cannot be opened or read to its end
  5  a file, directory or address of this host cannot be used

Results go to stdout, messages to stderr; --json makes the results JSON lines.
RUST_LOG sets log levels, for all or by module: RUST_LOG=debug, RUST_LOG=warn,catchment=debug.";

/// Collects frames from many devices over RDMA-shaped verbs
#[derive(Debug, Parser)]
#[command(name = "catchment", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Log what happens; repeat it for more detail
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a demonstration: 12 cameras, one queue pair and a collector, all on this machine
    Demo(DemoArgs),
    /// Collect frames from any number of sources
    Collect(CollectArgs),
    /// Grant sources the right to send over a link that they share
    Control(ControlArgs),
    /// Send frames of one or more devices to a collector
    Send(SendArgs),
    /// Show what works on this machine, and what to fix
    Doctor(DoctorArgs),
    /// List the devices of all providers
    Devices(DevicesArgs),
    /// Explain which path frames take to a host, and why
    Explain(ExplainArgs),
    /// Measure the path between two machines, or within one, as perftest does
    Bench(BenchArgs),
    /// Share one device among applications, by weights
    Agent(AgentArgs),
    /// Keep keys and values in registered memory, read and written over RDMA; in memory only
    Kv(Box<KvArgs>),
    /// Carry TCP connections of unmodified programs over RDMA
    Tunnel(TunnelArgs),
    /// Make a certificate authority and certificates for use off loopback
    Cert(CertArgs),
    /// Print the checksums of frames of an input
    #[command(hide = true)]
    Checksums(ChecksumsArgs),
}

impl Arguments {
    /// Those of this process. Wrong ones end it with exit code 2.
    pub(crate) fn of_process() -> Self {
        Self::of(&Self::command().get_matches()).unwrap_or_else(|error| error.exit())
    }

    fn of(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut arguments = Self::from_arg_matches(matches)?;
        if let (Command::Send(send), Some(matches)) =
            (&mut arguments.command, matches.subcommand_matches("send"))
        {
            send.each = per_input::read(matches, Self::command())?;
        }
        Ok(arguments)
    }

    #[cfg(test)]
    pub(crate) fn parse_words(words: &[&str]) -> Result<Self, clap::Error> {
        Self::of(&Self::command().try_get_matches_from(words)?)
    }
}

/// How the control connection is protected.
#[derive(Debug, Clone, Args)]
pub(crate) struct Security {
    /// Certificate of this side (PEM); needed off loopback, `catchment cert` makes it. Read again, as key
    /// and authority, when it changes
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"], conflicts_with = "insecure")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Certificate of the authority that the other side's certificate must be from (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) ca: Option<PathBuf>,
    /// Connect off loopback without certificates: anyone on the path can read and change everything
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Authenticate every RoCEv2 packet with keys from the session (AES-GCM): spoofed ones change nothing; in
    /// software on both sides, not with RNICs
    #[arg(long, requires = "cert")]
    pub(crate) authenticate: bool,
}

impl Security {
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { cert: self.cert.clone()?, key: self.key.clone()?, ca: self.ca.clone()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_the_arguments_is_sound() {
        Arguments::command().debug_assert();
    }
}
