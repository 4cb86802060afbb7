//! Arguments of `catchment collect`.
use super::{ProviderArgs, Security, values};
use crate::failure::{Code, Failure};
use anyhow::anyhow;
use catchment::collector::AllowRule;
use catchment::session::io::Address;
use catchment::session::names::DeviceName;
use clap::{ArgAction, Args, ValueEnum};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SinkKind {
    /// A directory for each device, one file a frame
    Dir,
    /// Nowhere: frames are verified and counted
    Null,
}

impl SinkKind {
    /// Refuses options that say where frames are stored where they are not.
    ///
    /// # Errors
    /// Frames go nowhere, and there is a directory or a number of them to keep.
    pub(crate) fn check(
        sink: Option<Self>,
        out: Option<&Path>,
        keep_frames: Option<u64>,
    ) -> Result<(), Failure> {
        let idle = match (sink, out, keep_frames) {
            (Some(Self::Null), Some(_), _) => "--out",
            (Some(Self::Null), None, Some(_)) => "--keep-frames",
            _ => return Ok(()),
        };
        let error = anyhow!("{idle} does nothing with --sink null, which stores no frames");
        Err(Failure::new(Code::Usage, error).hint("omit one of the two"))
    }
}

/// Collect frames from any number of sources
#[derive(Debug, Clone, Args)]
pub(crate) struct CollectArgs {
    /// Where sources connect: HOST:PORT (port 0: a free one) or unix:PATH
    #[arg(long, value_name = "ADDR", required_unless_present = "forget")]
    pub(crate) listen: Option<Address>,
    /// Directory for the frames: OUT/DEVICE/NUMBER holds exactly a frame's bytes
    #[arg(long, value_name = "OUT")]
    pub(crate) out: Option<PathBuf>,
    /// What to do with the frames [default: dir]
    #[arg(long, value_name = "KIND")]
    pub(crate) sink: Option<SinkKind>,
    /// Keep only the newest N frames of each device, and fewer where the disk is nearly full
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_frames: Option<u64>,
    /// Address of the live page and the metrics [default: a free port of 127.0.0.1]; off loopback they
    /// are for who has a certificate, with --insecure for everybody
    #[arg(long, value_name = "ADDR", value_parser = values::socket_address, conflicts_with = "no_dashboard")]
    pub(crate) dashboard: Option<SocketAddr>,
    /// Name by which browsers may call the live page, besides addresses and `localhost`; may be repeated
    #[arg(long, value_name = "HOST", action = ArgAction::Append, conflicts_with = "no_dashboard")]
    pub(crate) dashboard_name: Vec<String>,
    /// Do not serve the live page
    #[arg(long)]
    pub(crate) no_dashboard: bool,
    #[command(flatten)]
    pub(crate) security: Security,
    /// Let sources with this certificate send these devices, and no others; `*` stands for any characters.
    /// Repeat it for each certificate. Without it a device name belongs to the first certificate that
    /// used it
    #[arg(long, value_name = "CERT=DEVICE,...", requires = "cert")]
    pub(crate) allow: Vec<AllowRule>,
    /// Free a device name that belongs to a certificate, and end; needs --out
    #[arg(long, value_name = "DEVICE", requires = "out")]
    pub(crate) forget: Option<DeviceName>,
    /// Maximum devices of one source, and of all sources of one certificate together
    #[arg(long, value_name = "N", default_value = "4096", value_parser = values::count)]
    pub(crate) devices_max: usize,
    /// How long a source may be silent before it counts as gone
    #[arg(long, value_name = "SECONDS", value_parser = values::some_seconds, default_value = "10")]
    pub(crate) lease: Duration,
    /// Maximum memory for one source's frames in flight, such as 256MiB
    #[arg(long, value_name = "BYTES", value_parser = values::ring_bytes, default_value = "1GiB")]
    pub(crate) ring_bytes: u64,
    /// Longest pause between two polls for frames where the provider has no doorbell, as RNICs have
    /// none; 0: poll all the time, which takes a core for each source
    #[arg(long, value_name = "US", default_value = "1000", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(crate) look_every_us: u64,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Write JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    /// End when stdin closes: the process that started this one is gone
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}
