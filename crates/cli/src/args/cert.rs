//! Arguments of `catchment cert`, and of the hidden `checksums`.
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
  catchment cert --out certs --name collector.lab,192.168.1.10 --name cam-host.lab
  catchment collect --listen 192.168.1.10:7117 --out frames \\
      --cert certs/collector.lab.pem --key certs/collector.lab.key --ca certs/ca.pem
  catchment send --input clip.mp4 --device cam0 192.168.1.10:7117 \\
      --cert certs/cam-host.lab.pem --key certs/cam-host.lab.key --ca certs/ca.pem

The authority is made at the first call and used by later ones. Keep ca.key to yourself: who has
it can make certificates that your collectors accept.";

/// Make a certificate authority and certificates for use off loopback
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CertArgs {
    /// Directory of the authority; the certificates are written there too
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Host names and IP addresses of one host, separated by commas; its files get the first as
    /// their name. Repeat it for more hosts
    #[arg(long, value_name = "NAME[,NAME...]", required = true, action = ArgAction::Append)]
    pub(crate) name: Vec<String>,
    /// How long the certificates are valid
    #[arg(long, value_name = "DAYS", default_value = "397", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub(crate) days: u64,
    /// Write JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the CRC-32C of the first frames of an input, one a line
#[derive(Debug, Clone, Args)]
pub(crate) struct ChecksumsArgs {
    /// As for `catchment send`
    #[arg(long, value_name = "INPUT")]
    pub(crate) input: OsString,
    /// Number of the device in its source
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) device_index: u32,
    /// Name of the device [default: camN]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// How many frames
    #[arg(long, value_name = "N")]
    pub(crate) frames: u64,
}
