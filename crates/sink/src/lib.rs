//! Frames as a collector hands them out, and sinks: where they go.
//!
//! - In: received blocks, from the collector, which makes [`Frame`]s of them.
//! - Out: frames, to a function ([`CallbackSink`]), files ([`DirectorySink`]), or nowhere ([`NullSink`]); more sinks
//!   are implementations of [`Sink`].
//! - Promises: a frame's block belongs to the source again when the frame is dropped, in any order; a frame in a file
//!   is there whole or not at all; a frame that a sink refuses comes back unchanged.
//!
//! A [`Sink`] opens a [`DeviceSink`] once for every device, which gets the frames of that device in
//! packet order, one at a time. Different devices run on different worker threads:
//! a slow one does not stop the others.
#![forbid(unsafe_code)]

mod block;
mod callback;
mod directory;
mod frame;
mod null;
mod staging;

pub use block::CountedBlock;
pub use callback::CallbackSink;
pub use directory::{DirectorySink, DiskLimit};
pub use frame::{Frame, FrameBytes};
pub use null::NullSink;
pub use staging::{Staged, Staging};

use std::path::PathBuf;

/// Makes a place for the frames of each device.
pub trait Sink: Send + Sync + 'static {
    /// Called once, before a collector that uses it takes frames. By default there is nothing to do.
    ///
    /// # Errors
    /// The collector does not start.
    fn begin(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Called before the first frame of a device; again only if no frame came before its source left.
    /// Sources choose the names: what costs something should wait for the first frame.
    ///
    /// # Errors
    /// The device is refused with this error's text.
    fn open(&self, device: &str) -> Result<Box<dyn DeviceSink>, SinkError>;
}

/// Takes the frames of one device.
pub trait DeviceSink: Send {
    /// The packet number after the newest frame that is safe here, also if an earlier collector
    /// process stored it. `None` when the sink does not know: then the source says where to begin.
    fn next_packet(&self) -> Option<u64>;

    /// Called before the frames of a session, with what their source says that they hold, such as
    /// `640x480:rgb24`; empty where it says nothing. By default it does not matter.
    fn describe(&mut self, _format: &str) {}

    /// Takes the next frame. Keeping the frame keeps its block from the source; [`Frame::hold`] says that
    /// this will take long.
    ///
    /// # Errors
    /// The frame comes back and is offered again after a while; meanwhile the device waits.
    #[allow(
        clippy::result_large_err,
        reason = "the frame comes back as it went in, without an allocation"
    )]
    fn accept(&mut self, frame: Frame) -> Result<(), Rejected>;
}

/// A frame that a sink could not take, and why.
#[derive(Debug)]
pub struct Rejected {
    /// The frame, unchanged.
    pub frame: Frame,
    /// The reason.
    pub error: SinkError,
}

/// A sink cannot take frames.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file system is nearly full.
    #[error(
        "{}: only {available_bytes} bytes are free and {reserve_bytes} are kept in reserve; {advice}",
        .path.display()
    )]
    DiskFull {
        /// The output directory.
        path: PathBuf,
        /// Bytes free for this user.
        available_bytes: u64,
        /// Bytes that the sink leaves free.
        reserve_bytes: u64,
        /// What to do.
        advice: &'static str,
    },
    /// Another collector writes to the directory.
    #[error(
        "{} is used by another collector{}; end that one, or choose another directory",
        .path.display(), .pid.map_or(String::new(), |pid| format!(", process {pid}"))
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Number of its process, where that can be read.
        pid: Option<u32>,
    },
    /// A directory of a device holds something that is not a frame.
    #[error("{} is not a frame: its name is not a packet number of {digits} digits; move it away", .path.display())]
    ForeignFile {
        /// The file.
        path: PathBuf,
        /// Digits of a frame's name.
        digits: usize,
    },
    /// The application's own reason.
    #[error("{0}")]
    Application(String),
}
