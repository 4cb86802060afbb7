//! Arguments of `catchment doctor`, `devices` and `explain`.
use super::control::ADDRESS as CONTROLLER;
use super::{DeviceArgs, ProviderArgs, Security, values};
use catchment::session::io::Address;
use catchment::session::names::DeviceName;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

const DOCTOR_HELP: &str = "\
Nothing is changed, and nothing is sent to another host but to the controller that is named. Run it where the program will run: in the
container, as the user.

Exit codes: 0 nothing to fix (notes are no problem), 1 a problem, 2 wrong arguments.";

/// Show what works on this machine, and what to fix
#[derive(Debug, Clone, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
    /// Ask this transmission controller (HOST:PORT) too, and whether its grants would come
    #[arg(long, value_name = "ADDR")]
    pub(crate) controller: Option<Address>,
    #[command(flatten)]
    pub(crate) security: Security,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the devices of all providers
#[derive(Debug, Clone, Args)]
pub(crate) struct DevicesArgs {
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
    /// Write one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

const EXPLAIN_HELP: &str = "\
  catchment explain 10.0.0.1              shows what this side knows of the path
  catchment explain 10.0.0.1:7117         asks the collector, and tests the path that it chooses
  catchment explain stream cam0           asks the transmission controller what frames of cam0 wait for

With a port, a session without devices is held: all is done that `catchment send` would do, up to
the proof that packets pass both ways. The collector counts it as a session.

Exit codes: 0 there is a path (with a port: packets pass), 2 wrong arguments, 3 there is none.";

/// Explain which path frames take to a host, and why; or what they wait for
#[derive(Debug, Clone, Args)]
#[command(after_help = EXPLAIN_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct ExplainArgs {
    /// What else to explain
    #[command(subcommand)]
    pub(crate) what: Option<ExplainWhat>,
    /// The other host: HOST, or a collector at HOST:PORT or unix:PATH
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: Option<There>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    #[command(flatten)]
    pub(crate) security: Security,
    /// How long a collector may take to answer
    #[arg(long, value_name = "SECONDS", value_parser = values::some_seconds, default_value = "5")]
    pub(crate) wait: Duration,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be explained beside the path to a host.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ExplainWhat {
    /// Explain what the frames of a device wait for: asks the transmission controller
    Stream(ExplainStreamArgs),
}

const STREAM_HELP: &str = "\
Exit codes: 0 explained, 1 no source with such a device is registered, 2 wrong arguments, 3 no controller answers.";

/// Explain what the frames of a device wait for: asks the transmission controller
#[derive(Debug, Clone, Args)]
#[command(after_help = STREAM_HELP)]
pub(crate) struct ExplainStreamArgs {
    /// The device
    #[arg(value_name = "NAME")]
    pub(crate) name: DeviceName,
    /// The controller: HOST:PORT
    #[arg(long, value_name = "ADDR", default_value = CONTROLLER)]
    pub(crate) controller: Address,
    #[command(flatten)]
    pub(crate) security: Security,
    /// Write JSON: a list, one of each source that has the device
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum There {
    Host(String),
    Collector(Address),
}

impl FromStr for There {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let is_address = bare.parse::<IpAddr>().is_ok();
        let is_name = !text.is_empty() && !text.contains(':');
        if is_address || is_name {
            return Ok(Self::Host(bare.to_owned()));
        }
        let address: Result<Address, _> = text.parse();
        address.map(There::Collector).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_stand_without_a_port() {
        let host = |text: &str| Ok(There::Host(text.to_owned()));
        for (text, expected) in [
            ("10.0.0.1", host("10.0.0.1")),
            ("fd00::1", host("fd00::1")),
            ("[fd00::1]", host("fd00::1")),
            ("collector.lab", host("collector.lab")),
        ] {
            assert_eq!(text.parse::<There>(), expected, "{text}");
        }
        for text in ["10.0.0.1:7117", "[fd00::1]:7117", "unix:/run/c.sock", "lab:1"] {
            let seen = text.parse::<There>().unwrap();
            assert_eq!(seen, There::Collector(text.parse().unwrap()));
        }
        for text in ["", ":7117", "lab:port"] {
            assert!(text.parse::<There>().is_err(), "{text}");
        }
    }
}
