//! A source: devices whose frames go to a collector.
//!
//! In come frames, through [`Device::frame`]; out go blocks, into the collector's ring. A frame that
//! was accepted arrives whole, in order and once, as long as this process and a collector live; a
//! frame that is dropped is counted at both ends; devices do not wait for each other. One [`Source`]
//! has one queue pair for all its devices, and finds its collector again when the connection breaks.
//!
//! What happens to a frame:
//!
//! | file | |
//! |---|---|
//! | `device` | claims a block for a frame and commits it; decides what happens while there is none |
//! | `writer`, `fill` | a frame while it is filled, by bytes or out of a pipe |
//! | `backlog`, `pump` | frames that wait in this process, and the thread that sends them in order |
//!
//! What happens to a connection, in this order:
//!
//! | file | |
//! |---|---|
//! | `control` | finds the collector, speaks with it, begins again when the connection breaks |
//! | `prepared` | the queue pair before its peer is known |
//! | `connecting`, `proof` | connecting the queue pair, and the proof that packets pass |
//! | `link`, `room` | the connection that filling threads use, and how they wait for room |
//! | `driver` | keeps a link going whose requests take time |
//! | `gate` | closes a link: separates what was committed before from what comes after |
//! | `shared`, `lifecycle` | what all threads of a source share: each device's numbers; the link of the moment, and the end |
mod backlog;
mod builder;
mod connecting;
mod control;
mod device;
mod driver;
mod fill;
mod gate;
mod lifecycle;
mod link;
mod prepared;
pub mod probe;
mod proof;
mod pump;
mod room;
mod shared;
mod welcome;
mod wish;
mod writer;

pub use crate::format::FRAME_BYTES_MAX;
pub use crate::observe::Standing;
pub use crate::session::message::Policy;
pub use builder::{DeviceSpec, SourceBuilder};
pub use catchment_granting::{Fallback, Missed, UNPACED_PART_BYTES};
pub use catchment_transfer::{Decision, Permit, PermitRequest};
pub use device::{Device, FrameWriter, Sent};
pub use writer::{FrameContents, OwnedFrameWriter};

use crate::observe::{SourceMetrics, SourceSnapshot, Unaccounted};
use crate::session::refusal::Refusal;
use catchment_granting::StartError;
use catchment_verbs::sync::Mutex;
use shared::Shared;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A set of devices connected to one collector.
///
/// ```no_run
/// use catchment::source::{DeviceSpec, Source};
/// use std::time::Duration;
///
/// let source = Source::builder("127.0.0.1:7117")
///     .device(DeviceSpec::new("cam0").format("640x480:rgb24".parse()?))
///     .connect()?;
/// let mut cam0 = source.device("cam0")?;
/// for _ in 0..250 {
///     let picture = vec![0; 640 * 480 * 3];
///     cam0.frame(picture.len())?.send_bytes(&picture)?;
/// }
/// let report = source.close(Duration::from_secs(10))?;
/// println!("{} frames are safe at the collector", report.totals.frames_sent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Source {
    shared: Arc<Shared>,
    free: Mutex<Vec<Device>>,
    threads: Vec<JoinHandle<()>>,
}

impl Source {
    /// Begins to describe a source for the collector at `collector`: `HOST:PORT`, or `unix:PATH`.
    pub fn builder(collector: impl Into<String>) -> SourceBuilder {
        SourceBuilder::new(collector.into())
    }

    /// Makes devices that wait for room ask the permit again
    /// ([`SourceBuilder::permit`]). From any thread; does nothing while not connected.
    pub fn wake(&self) {
        if let Some(link) = self.shared.life.link() {
            link.sender.wake();
        }
    }

    /// Takes the handle of a device out. It can move to any thread.
    ///
    /// # Errors
    /// [`SourceError::NoDevice`] for an unknown name or one taken before.
    pub fn device(&self, name: &str) -> Result<Device, SourceError> {
        let mut free = self.free.lock();
        let found = free.iter().position(|device| device.name() == name);
        match found {
            Some(i) => Ok(free.swap_remove(i)),
            None => Err(SourceError::NoDevice {
                name: name.to_owned(),
                free: free.iter().map(|d| d.name().to_owned()).collect(),
            }),
        }
    }

    /// Returns the live counters; once the source has ended, the last ones.
    pub fn metrics(&self) -> &Arc<SourceMetrics> {
        &self.shared.metrics
    }

    /// Returns how it stands with its transmission controller; `None` without one
    /// ([`SourceBuilder::controller`]).
    pub fn standing(&self) -> Option<Standing> {
        self.shared.metrics.grant().map(|grant| grant.standing)
    }

    /// Returns why the source accepts no more frames, if so.
    pub fn ended(&self) -> Option<Arc<SourceError>> {
        self.shared.life.ended()
    }

    /// Waits until the collector has delivered every accepted frame to its sink, says goodbye, and
    /// returns the final counters. Device handles that still live get [`SourceError::Closed`].
    ///
    /// # Errors
    /// [`SourceError::Undelivered`] if that takes longer than `timeout`; [`SourceError::Lost`] if the
    /// collector could not deliver some of them; [`SourceError::Unaccounted`] if the two sides disagree;
    /// [`SourceError::Ended`] if the collector refused the source for good.
    pub fn close(mut self, timeout: Duration) -> Result<SourceSnapshot, SourceError> {
        self.shared.life.begin_closing();
        let deadline = Instant::now() + timeout;
        let finished = self.shared.life.wait_finished(deadline);
        let ended = self.shared.life.ended();
        self.stop();
        // Also after a goodbye: another thread may have sent a frame in that moment.
        let frames = self.shared.undelivered_frames();
        match ended {
            Some(error) => Err(SourceError::Ended(error)),
            None => match finished {
                Some(Ok(0)) if frames == 0 => Ok(self.shared.metrics.snapshot()),
                Some(Ok(lost)) if frames == 0 => Err(SourceError::Lost { frames: lost }),
                Some(Err(unaccounted)) if frames == 0 => Err(unaccounted.into()),
                _ => Err(SourceError::Undelivered { frames, timeout }),
            },
        }
    }

    fn stop(&mut self) {
        self.shared.life.stop();
        if let Some(granting) = &self.shared.granting {
            granting.stop();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the source panicked");
            }
        }
        for device in &self.shared.devices {
            device.settle_without_collector();
        }
    }
}

impl Drop for Source {
    /// Stops at once. Frames that the collector does not have are lost; [`Source::close`] waits.
    fn drop(&mut self) {
        self.stop();
    }
}

/// A source cannot go on, or refuses a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The description of the source is wrong.
    #[error("{0}")]
    Config(String),
    /// The collector cannot be reached, or does not take this source for now.
    #[error(
        "no session with a collector at {collector} within {waited:?}: {reason}; if none runs there, start one with `catchment collect`; or wait longer"
    )]
    Unreachable {
        /// Its address.
        collector: String,
        /// How long it was tried.
        waited: Duration,
        /// Why the last attempt failed.
        reason: String,
    },
    /// The collector refuses this source for good.
    #[error("the collector at {collector} refuses: {refusal}")]
    Refused {
        /// Its address.
        collector: String,
        /// Why, and what to do.
        refusal: Refusal,
    },
    /// This source cannot work with the collector: the collector breaks the protocol, or has a ring that
    /// this source cannot use.
    #[error("this source cannot work with the collector at {collector}: {refusal}")]
    Incompatible {
        /// Its address.
        collector: String,
        /// The refusal that was sent to the collector.
        refusal: Refusal,
    },
    /// There is no such device, or its handle was taken before.
    #[error("no device {name:?} to take; available: {}", .free.join(", "))]
    NoDevice {
        /// The name asked for.
        name: String,
        /// The names that can be taken.
        free: Vec<String>,
    },
    /// A frame of a size that cannot be sent.
    #[error("cannot send a frame of {bytes} bytes; 1 to {limit} are allowed")]
    FrameSize {
        /// Its size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// A frame was sent before it was filled.
    #[error("the frame has {filled} of {bytes} bytes")]
    Incomplete {
        /// Bytes written.
        filled: usize,
        /// Bytes needed.
        bytes: usize,
    },
    /// A frame was begun by another device.
    #[error("a frame of device {frame_of} cannot be sent by device {device}")]
    OtherDevice {
        /// The device that began it.
        frame_of: String,
        /// The device that was to send it.
        device: String,
    },
    /// The source takes no more frames.
    #[error("the source has ended: {0}")]
    Ended(#[source] Arc<Self>),
    /// [`Source::close`] was called.
    #[error("the source is closed")]
    Closed,
    /// Some accepted frames did not get to the collector in time.
    #[error("{frames} accepted frames were not delivered within {timeout:?}")]
    Undelivered {
        /// How many.
        frames: usize,
        /// The time that was given.
        timeout: Duration,
    },
    /// Frames that this source sent never reached the collector's sinks, and cannot be had again.
    #[error("{frames} frames are lost: damaged on their way, or sent to a collector that ended")]
    Lost {
        /// How many, in all sessions of this source.
        frames: u64,
    },
    /// What the collector says that it delivered and lost is not what this source sent.
    #[error(transparent)]
    Unaccounted(#[from] Unaccounted),
    /// The provider of verbs failed.
    #[error("{0}")]
    Verbs(#[from] catchment_verbs::VerbsError),
}

impl From<StartError> for SourceError {
    fn from(error: StartError) -> Self {
        Self::Config(error.to_string())
    }
}
