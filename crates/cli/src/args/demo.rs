//! Arguments of `catchment demo`.
use super::{ProviderArgs, Rate, SinkKind, values};
use catchment::format::FormatWish;
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const DEVICES_MAX: u64 = 4096;

/// Run a demonstration: a source process with cameras and a collector process, on this machine
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Number of devices [default: 12; with --input one for each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=DEVICES_MAX))]
    pub(crate) devices: Option<u64>,
    /// What the frames are [default: 640x480:rgb24; with --input as the clip says]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<FormatWish>,
    /// Frames per second of each device, or `max` [default: 25; with --input as the clip says]
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// How long frames are sent
    #[arg(long, value_name = "SECONDS", value_parser = values::some_seconds, default_value = "10")]
    pub(crate) seconds: Duration,
    /// End each device after N frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Frames of this clip, again and again, in place of the pattern; repeat it for more clips
    #[arg(long, value_name = "INPUT", action = ArgAction::Append)]
    pub(crate) input: Vec<OsString>,
    /// Directory for the frames [default: a new one for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What to do with the frames [default: dir; with --rate max and no --out null]
    #[arg(long, value_name = "KIND")]
    pub(crate) sink: Option<SinkKind>,
    /// Keep only the newest N frames of each device [default: 25, fewer where that is over 1 GiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep_frames: Option<u64>,
    /// Address of the live page [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR", value_parser = values::socket_address, conflicts_with = "no_dashboard")]
    pub(crate) dashboard: Option<SocketAddr>,
    /// Do not serve the live page
    #[arg(long)]
    pub(crate) no_dashboard: bool,
    /// Requests that may be outstanding on the queue pair; 2 is the least
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) send_queue: Option<u32>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Show what a transmission controller does instead: cameras share a narrow link, without one and with one
    #[arg(long, conflicts_with_all = ["format", "rate", "frames", "input", "out", "sink", "keep_frames", "dashboard",
        "send_queue"])]
    pub(crate) controller: bool,
    /// With --controller: the narrow link is a relay in this process, as where network namespaces are not allowed
    #[arg(long, requires = "controller")]
    pub(crate) relay: bool,
    /// Write the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
