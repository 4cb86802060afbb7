//! The application's handle to one device of a source.
use super::SourceError;
use super::backlog::Waiting;
use super::link::{Link, Reserve};
use super::shared::{DeviceState, Shared};
use super::writer::{FrameContents, OwnedFrameWriter, Target, writes_contents};
use crate::session::message::Policy;
use catchment_granting::Event;
use catchment_transfer::{BlockMeta, CommitError, WriteBlock};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest sleep of a filling thread before it checks the link again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// One device of a source. Frames are filled and sent through it, in order, by one thread at a
/// time; different devices may be used by different threads without waiting for each other.
pub struct Device {
    shared: Arc<Shared>,
    state: Arc<DeviceState>,
    /// The link used last; looked up again when it is closed.
    link: Option<Arc<Link>>,
    /// Since when there is no room for the next frame.
    blocked_since: Option<Instant>,
}

/// Fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is in the collector's memory, or waits to be sent; it will arrive as long as this process
    /// and a collector live, unless a transmission controller has it dropped as too late, which
    /// [`SourceBuilder::on_missed`](super::SourceBuilder::on_missed) tells: its packet number.
    Accepted(u64),
    /// No block was free and the policy is to drop new frames. Counted; the collector will know.
    Dropped,
}

impl Device {
    pub(super) fn new(shared: Arc<Shared>, state: Arc<DeviceState>) -> Self {
        Self { shared, state, link: None, blocked_since: None }
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        self.state.name.as_str()
    }

    /// Returns the packet number of the next new frame. At a collector with frames of an earlier
    /// process, the numbers continue after them.
    pub fn next_packet(&self) -> u64 {
        self.state.next_packet()
    }

    /// Says that the next `frames` frames that are sent belong together. A transmission controller
    /// ([`SourceBuilder::controller`](super::SourceBuilder::controller)) grants them as one: leave for all is asked
    /// for with the first, which counts as large as each of the others, and the age of the event is that of its first
    /// frame. An event ends with its last frame, or with a frame or an event behind it. Without a controller it
    /// does nothing.
    pub fn event(&mut self, frames: u32) {
        let at = self.shared.devices.iter().position(|state| Arc::ptr_eq(state, &self.state));
        if let (Some(granting), Some(at)) = (&self.shared.granting, at) {
            let (device, first) = (u32::try_from(at).unwrap_or(u32::MAX), self.next_packet());
            granting.begin(Event { device, first, end: first.saturating_add(frames.into()) });
        }
    }

    /// Begins a frame of exactly `bytes` bytes.
    ///
    /// With [`Policy::Block`] this waits until the collector has room. With the other policies it
    /// returns at once.
    ///
    /// # Errors
    /// [`SourceError::Ended`] when the source was closed or refused for good;
    /// [`SourceError::FrameSize`] for 0 bytes or more than 1 GiB.
    pub fn frame(&mut self, bytes: usize) -> Result<FrameWriter<'_>, SourceError> {
        let contents = self.wait_for_contents(bytes)?;
        Ok(FrameWriter { device: self, contents })
    }

    /// Begins a frame as [`Device::frame`] does, or returns `None` where that would wait. For one
    /// thread that serves several devices.
    ///
    /// # Errors
    /// As [`Device::frame`].
    pub fn try_frame(&mut self, bytes: usize) -> Result<Option<FrameWriter<'_>>, SourceError> {
        let contents = self.begin(bytes)?;
        Ok(contents.map(|contents| FrameWriter { device: self, contents }))
    }

    /// Begins a frame as [`Device::frame`] does, to be filled anywhere: by another thread, or across
    /// a language boundary. [`Device::send`] sends it.
    ///
    /// Several frames of a device may be filled at once. Each that is begun takes a block of the
    /// device's share until it is sent or dropped; they are numbered in the order in which they are
    /// sent.
    ///
    /// # Errors
    /// As [`Device::frame`].
    pub fn frame_owned(&mut self, bytes: usize) -> Result<OwnedFrameWriter, SourceError> {
        let contents = self.wait_for_contents(bytes)?;
        Ok(OwnedFrameWriter::new(self.state.clone(), contents))
    }

    /// Begins a frame as [`Device::frame_owned`] does, or returns `None` where that would wait.
    ///
    /// # Errors
    /// As [`Device::frame`].
    pub fn try_frame_owned(
        &mut self,
        bytes: usize,
    ) -> Result<Option<OwnedFrameWriter>, SourceError> {
        let contents = self.begin(bytes)?;
        Ok(contents.map(|contents| OwnedFrameWriter::new(self.state.clone(), contents)))
    }

    /// Sends a frame that [`Device::frame_owned`] of this device began.
    ///
    /// # Errors
    /// As [`FrameWriter::send`]; [`SourceError::OtherDevice`] for a frame of another device.
    pub fn send(&mut self, frame: OwnedFrameWriter) -> Result<Sent, SourceError> {
        let contents = frame.into_contents_of(&self.state)?;
        self.send_contents(contents)
    }

    fn wait_for_contents(&mut self, bytes: usize) -> Result<FrameContents, SourceError> {
        loop {
            if let Some(contents) = self.begin(bytes)? {
                return Ok(contents);
            }
            self.wait_for_room(POLL_INTERVAL);
        }
    }

    fn begin(&mut self, bytes: usize) -> Result<Option<FrameContents>, SourceError> {
        let target = self.find_target(bytes)?;
        Ok(target.map(|target| FrameContents::new(bytes, target)))
    }

    fn find_target(&mut self, bytes: usize) -> Result<Option<Target>, SourceError> {
        if bytes == 0 || bytes > super::FRAME_BYTES_MAX {
            return Err(SourceError::FrameSize { bytes, limit: super::FRAME_BYTES_MAX });
        }
        match self.state.policy {
            Policy::Block => self.try_target_timed(bytes),
            Policy::DropOldest | Policy::DropNewest => self.target_now(bytes).map(Some),
        }
    }

    fn try_target_timed(&mut self, bytes: usize) -> Result<Option<Target>, SourceError> {
        let target = self.try_target(bytes)?;
        if target.is_none() {
            self.blocked_since.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.blocked_since.take() {
            self.state.metrics.waited_for_block(since.elapsed());
        }
        Ok(target)
    }

    /// Returns a place for the frame, if there is one now.
    fn try_target(&mut self, bytes: usize) -> Result<Option<Target>, SourceError> {
        self.shared.check_open()?;
        if self.state.has_backlog() {
            return Ok(None);
        }
        let Some(link) = self.link() else { return Ok(None) };
        if bytes > link.payload_bytes_max {
            return Ok(Some(Target::staged(bytes)));
        }
        Ok(match link.reserve(self.state.stream(), bytes) {
            Reserve::Block(block) => Some(Target::Block(block, link)),
            Reserve::Full => None,
            Reserve::Dead => {
                // The control thread would notice by itself, but late if the source was idle.
                self.shared.life.control.notify_one();
                None
            }
        })
    }

    fn target_now(&mut self, bytes: usize) -> Result<Target, SourceError> {
        Ok(match self.try_target(bytes)? {
            Some(target) => target,
            None if self.state.policy == Policy::DropNewest => Target::Dropped,
            None => Target::staged(bytes),
        })
    }

    /// Returns the open link, if there is one.
    fn link(&mut self) -> Option<Arc<Link>> {
        if self.link.as_ref().is_none_or(|link| link.is_closed()) {
            self.link = self.shared.life.link();
        }
        self.link.clone()
    }

    /// Sleeps until there may be room for a frame, at most for `timeout`.
    pub fn wait_for_room(&mut self, timeout: Duration) {
        if self.state.has_backlog() {
            self.state.wait_for_backlog(timeout);
        } else if let Some(link) = self.link() {
            link.wait_for_room(self.state.stream(), timeout);
        } else {
            self.shared.life.wait_for_link(timeout);
        }
    }

    fn commit(
        &mut self,
        block: WriteBlock,
        link: &Link,
        capture_time_ns: u64,
    ) -> Result<u64, SourceError> {
        let Some(_inside) = link.gate.enter() else {
            // The link died while the frame was filled: its bytes are still here.
            return self.stage(block.memory().to_vec(), capture_time_ns);
        };
        let (packet_number, skipped) = self.state.take_number();
        let bytes = u64::from(block.bytes());
        let meta = BlockMeta {
            packet_number,
            frame_bytes: bytes,
            frame_offset: 0,
            capture_time_ns,
            skipped,
            flags: 0,
        };
        let committed = block.commit(&meta, link.has_checksum());
        self.state.metrics.frame_sent(bytes);
        if let Err(CommitError { block, reason }) = committed {
            // As above; the link is not closed yet. The number is taken, so it keeps it.
            tracing::debug!(%reason, "a frame waits for the next link");
            let frame = Waiting {
                skipped,
                capture_time_ns,
                counted: true,
                bytes: block.memory().to_vec().into(),
            };
            self.state.push(packet_number, frame);
        }
        Ok(packet_number)
    }

    /// Hands the frame to the pump.
    fn stage(&mut self, bytes: Vec<u8>, capture_time_ns: u64) -> Result<u64, SourceError> {
        self.shared.check_open()?;
        Ok(self.state.stage(bytes, capture_time_ns))
    }

    /// Sends the frame.
    pub(super) fn send_contents(&mut self, contents: FrameContents) -> Result<Sent, SourceError> {
        let (target, captured_ns) = contents.into_target()?;
        let packet_number = match target {
            Target::Block(block, link) => self.commit(block, &link, captured_ns)?,
            Target::Staged(bytes) => self.stage(bytes, captured_ns)?,
            Target::Dropped => {
                self.state.drop_new();
                return Ok(Sent::Dropped);
            }
        };
        self.shared.pump_if_needed(&self.state);
        Ok(Sent::Accepted(packet_number))
    }
}

/// A frame being filled. Write exactly its bytes, through [`std::io::Write`] or in place, then
/// [`FrameWriter::send`] it. Dropping it unsent frees the block; the packet number is not used.
pub struct FrameWriter<'a> {
    device: &'a mut Device,
    contents: FrameContents,
}

impl FrameWriter<'_> {
    /// Sends the frame.
    ///
    /// # Errors
    /// [`SourceError::Incomplete`] if it is not filled; nothing is sent then.
    pub fn send(self) -> Result<Sent, SourceError> {
        self.device.send_contents(self.contents)
    }

    /// Writes the whole frame and sends it.
    ///
    /// # Errors
    /// As for [`FrameWriter::send`]; [`SourceError::Incomplete`] if `frame` has another length.
    pub fn send_bytes(mut self, frame: &[u8]) -> Result<Sent, SourceError> {
        self.contents.put_rest(frame)?;
        self.send()
    }
}

writes_contents!(FrameWriter<'_>);
