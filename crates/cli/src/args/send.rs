//! Arguments of `catchment send`.
use super::{InputArgs, PageArgs, ProviderArgs, Rate, Security, values};
use catchment::format::FormatWish;
use catchment::session::io::Address;
use catchment::source::{Fallback, Policy};
use clap::{ArgAction, Args, ValueEnum};
use std::ffi::OsString;
use std::time::Duration;

/// What happens to a frame when the collector has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Wait for room; nothing is dropped
    Block,
    /// Drop the oldest frame that waits
    DropOldest,
    /// Drop the new frame
    DropNewest,
}

impl From<PolicyArg> for Policy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Block => Self::Block,
            PolicyArg::DropOldest => Self::DropOldest,
            PolicyArg::DropNewest => Self::DropNewest,
        }
    }
}

/// What a source does while no controller answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FallbackArg {
    /// Send at the rate that the controller told it for this case
    SafeRate,
    /// Send nothing
    Stop,
    /// Send as if there were none, also before one was ever reached
    Free,
}

impl From<FallbackArg> for Fallback {
    fn from(fallback: FallbackArg) -> Self {
        match fallback {
            FallbackArg::SafeRate => Self::SafeRate,
            FallbackArg::Stop => Self::Stop,
            FallbackArg::Free => Self::Free,
        }
    }
}

const AFTER_HELP: &str = "\
--device, --format, --rate, --frames, --loop and --every-frame belong to the --input before them;
before the first --input they hold for all.

  catchment send --input clip.mp4 --device cam0 127.0.0.1:7117
  catchment send --loop --input a.mp4 --device front --input b.mp4 --device rear 127.0.0.1:7117
  my-camera | catchment send --input - --format 640x480:rgb24 --device cam0 127.0.0.1:7117

Exit codes: 0 all delivered, 1 not all delivered, 2 wrong arguments, 3 no collector or refused,
4 bad input, 5 unusable file.";

/// Send frames of one or more devices to a collector, through one queue pair
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SendArgs {
    /// Where frames come from: a video file or URL (ffmpeg decodes it), FILE.y4m, FILE.raw, `-`
    /// (stdin), a directory of pictures, `synthetic` or `synthetic:640x480:rgb24`; repeat it for
    /// more devices
    #[arg(long, value_name = "INPUT", required = true, action = ArgAction::Append)]
    pub(crate) input: Vec<OsString>,
    /// Name of the device, also that of its directory at the collector [default: the name of the
    /// file without its ending, else camN]
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    pub(crate) device: Vec<String>,
    /// Format of the frames, such as 640x480:rgb24, 640x480 or gray; raw input needs it
    #[arg(long, value_name = "FORMAT", action = ArgAction::Append)]
    pub(crate) format: Vec<FormatWish>,
    /// Frames per second, such as 25 or 30000/1001; `native`: as the input says; `max`: as fast as
    /// possible [default: synthetic 25, everything else max]
    #[arg(long, value_name = "RATE", action = ArgAction::Append)]
    pub(crate) rate: Vec<Rate>,
    /// End the device after N frames
    #[arg(long, value_name = "N", action = ArgAction::Append)]
    pub(crate) frames: Vec<u64>,
    /// Restart the input at its end, forever
    #[arg(long = "loop", action = ArgAction::Append, num_args = 0, default_missing_value = "true")]
    pub(crate) repeat: Vec<bool>,
    /// Send each decoded frame once, also of a clip whose frame rate varies; by default ffmpeg repeats
    /// frames, or leaves some out, to make the rate constant
    #[arg(long, action = ArgAction::Append, num_args = 0, default_missing_value = "true")]
    pub(crate) every_frame: Vec<bool>,
    /// End all devices after this time
    #[arg(long, value_name = "SECONDS", value_parser = values::some_seconds)]
    pub(crate) seconds: Option<Duration>,
    /// What to do with a frame when the collector has no room
    #[arg(long, value_name = "POLICY", value_enum, default_value = "block")]
    pub(crate) policy: PolicyArg,
    /// Send a CRC-32C that the collector verifies (the default)
    #[arg(long = "checksum", overrides_with = "no_checksum")]
    _checksum: bool,
    /// Send no checksum
    #[arg(long)]
    pub(crate) no_checksum: bool,
    /// Fill frames directly in the collector's memory where that is possible (the default)
    #[arg(long = "in-place", overrides_with = "no_in_place")]
    _in_place: bool,
    /// Fill frames in memory of this process, then copy them
    #[arg(long)]
    pub(crate) no_in_place: bool,
    /// Requests that may be outstanding on the queue pair; 2 is the least
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) send_queue: Option<u32>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    #[command(flatten)]
    pub(crate) security: Security,
    /// Send when the transmission controller at HOST:PORT grants it (`catchment control`); several that stand in
    /// for each other are separated by commas
    #[arg(long, value_name = "ADDR", value_parser = values::host_and_port, value_delimiter = ',')]
    pub(crate) controller: Vec<Address>,
    /// Class that a device claims there, such as cam0=urgent [default: the controller's last one]
    #[arg(long, value_name = "DEVICE=CLASS", value_parser = values::assigned, requires = "controller")]
    pub(crate) priority: Vec<(String, String)>,
    /// How old a frame of a device may be when it arrives, such as cam0=100ms [default: as its class says]
    #[arg(long, value_name = "DEVICE=TIME", value_parser = values::assigned_time, requires = "controller")]
    pub(crate) deadline: Vec<(String, Duration)>,
    /// A device sends a frame each period, such as cam0=40ms: it gets the rate for that once, and its frames need not
    /// ask
    #[arg(long, value_name = "DEVICE=TIME", value_parser = values::assigned_time, requires = "controller")]
    pub(crate) periodic: Vec<(String, Duration)>,
    /// What to do while no controller answers
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "safe-rate",
        requires = "controller"
    )]
    pub(crate) fallback: FallbackArg,
    /// How long to wait for a collector, at the start and for the last frames [default: forever]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Write JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    /// End when stdin closes: the process that started this one is gone
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
    /// The collector: HOST:PORT or unix:PATH
    #[arg(value_name = "ADDR")]
    pub(crate) collector: Address,
    /// The options of each input.
    #[arg(skip)]
    pub(crate) each: Vec<InputArgs>,
}
