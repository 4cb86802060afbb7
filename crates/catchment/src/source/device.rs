//! The application's handle to one device of a source.
use super::{
    SourceError,
    backlog::Waiting,
    link::{Link, Reserve},
    shared::{DeviceState, Shared},
};
use crate::frame::{now_unix_ns, unix_ns};
use crate::{observe::DropCause, session::message::Policy};
use catchment_transfer::{BlockMeta, CommitError, WriteBlock};
use catchment_verbs::mem::VolatileSlice;
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// How long a filling thread sleeps at most before it looks again whether the link lives.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

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

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is in the collector's memory, or waits to be sent; it will arrive as long as this process
    /// and a collector live.
    Accepted {
        /// Its packet number.
        packet_number: u64,
    },
    /// No block was free and the policy is to drop new frames. Counted; the collector will know.
    Dropped,
}

impl Device {
    pub(super) fn new(shared: Arc<Shared>, state: Arc<DeviceState>) -> Device {
        Device {
            shared,
            state,
            link: None,
            blocked_since: None,
        }
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        self.state.name.as_str()
    }

    /// Packet number of the next new frame. A collector that has frames of an earlier process
    /// lets the numbers go on behind them.
    pub fn next_packet(&self) -> u64 {
        self.state.next_packet()
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
        loop {
            if let Some(target) = self.begin(bytes)? {
                return Ok(self.writer(bytes, target));
            }
            self.wait_for_room(LOOK_AGAIN);
        }
    }

    /// Begins a frame as [`Device::frame`] does, or gives `None` where that would wait. For one
    /// thread that serves several devices.
    ///
    /// # Errors
    /// As [`Device::frame`].
    pub fn try_frame(&mut self, bytes: usize) -> Result<Option<FrameWriter<'_>>, SourceError> {
        let target = self.begin(bytes)?;
        Ok(target.map(|target| self.writer(bytes, target)))
    }

    fn writer(&mut self, bytes: usize, target: Target) -> FrameWriter<'_> {
        FrameWriter {
            capture_time_ns: None,
            filled: 0,
            bytes,
            target,
            device: self,
        }
    }

    fn begin(&mut self, bytes: usize) -> Result<Option<Target>, SourceError> {
        if bytes == 0 || bytes > super::FRAME_BYTES_MAX {
            return Err(SourceError::FrameSize {
                bytes,
                limit: super::FRAME_BYTES_MAX,
            });
        }
        match self.state.policy {
            Policy::Block => self.count_wait(bytes),
            Policy::DropOldest | Policy::DropNewest => self.target_now(bytes).map(Some),
        }
    }

    fn count_wait(&mut self, bytes: usize) -> Result<Option<Target>, SourceError> {
        let target = self.try_target(bytes)?;
        if target.is_none() {
            self.blocked_since.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.blocked_since.take() {
            self.state.metrics.waited_for_block(since.elapsed());
        }
        Ok(target)
    }

    /// A place for the frame, if there is one now.
    fn try_target(&mut self, bytes: usize) -> Result<Option<Target>, SourceError> {
        self.shared.check_open()?;
        if self.state.has_backlog() {
            return Ok(None);
        }
        let Some(link) = self.link() else {
            return Ok(None);
        };
        if bytes > link.payload_bytes_max() {
            return Ok(Some(Target::Staged(Vec::with_capacity(bytes))));
        }
        Ok(match link.reserve(self.state.stream(), bytes) {
            Reserve::Block(block) => Some(Target::Block(block, link)),
            Reserve::Full | Reserve::Dead => None,
        })
    }

    fn target_now(&mut self, bytes: usize) -> Result<Target, SourceError> {
        Ok(match self.try_target(bytes)? {
            Some(target) => target,
            None if self.state.policy == Policy::DropNewest => Target::Dropped,
            None => Target::Staged(Vec::with_capacity(bytes)),
        })
    }

    /// The open link, if there is one.
    fn link(&mut self) -> Option<Arc<Link>> {
        if self.link.as_ref().is_none_or(|link| link.is_closed()) {
            self.link = self.shared.link();
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
            self.shared.wait_for_link(timeout);
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

    /// Gives the frame to the pump.
    fn stage(&mut self, bytes: Vec<u8>, capture_time_ns: u64) -> Result<u64, SourceError> {
        self.shared.check_open()?;
        Ok(self.state.stage(bytes, capture_time_ns))
    }
}

/// A frame being filled. Write exactly its bytes, through [`io::Write`] or in place, then
/// [`FrameWriter::send`] it. Dropping it unsent gives the block back; the packet number is not used.
pub struct FrameWriter<'a> {
    device: &'a mut Device,
    target: Target,
    bytes: usize,
    filled: usize,
    /// By default the moment of the first byte.
    capture_time_ns: Option<u64>,
}

enum Target {
    /// A block: of the collector's memory where the provider can map it, else of ours.
    Block(WriteBlock, Arc<Link>),
    /// Memory of our own, to be sent by the pump.
    Staged(Vec<u8>),
    /// Nowhere.
    Dropped,
}

impl FrameWriter<'_> {
    /// Length of the frame in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Says when the frame was captured; without this it is the moment of its first byte.
    pub fn set_capture_time(&mut self, time: SystemTime) {
        self.capture_time_ns = Some(unix_ns(time));
    }

    /// Whether the frame will be dropped whatever is written, so that filling it is a waste.
    pub fn is_dropped(&self) -> bool {
        matches!(self.target, Target::Dropped)
    }

    /// The memory that is not filled yet, to fill it in place; then say how much with
    /// [`FrameWriter::advance`]. `None` where the frame is not in registered memory: use
    /// [`io::Write`] then.
    pub fn memory(&self) -> Option<VolatileSlice<'_>> {
        match &self.target {
            Target::Block(block, _) => block
                .memory()
                .subslice(self.filled, self.bytes - self.filled)
                .ok(),
            Target::Staged(_) | Target::Dropped => None,
        }
    }

    /// Counts bytes that were written through [`FrameWriter::memory`].
    ///
    /// # Panics
    /// If that is more than the frame has left.
    pub fn advance(&mut self, bytes: usize) {
        assert!(
            bytes <= self.bytes - self.filled,
            "advance beyond the frame's end"
        );
        self.stamp();
        self.filled += bytes;
    }

    /// Sends the frame.
    ///
    /// # Errors
    /// [`SourceError::Incomplete`] if it is not filled; nothing is sent then.
    pub fn send(self) -> Result<Sent, SourceError> {
        if self.filled != self.bytes && !self.is_dropped() {
            return Err(SourceError::Incomplete {
                filled: self.filled,
                bytes: self.bytes,
            });
        }
        let device = self.device;
        let captured_ns = self.capture_time_ns.unwrap_or_else(now_unix_ns);
        let packet_number = match self.target {
            Target::Block(block, link) => device.commit(block, &link, captured_ns)?,
            Target::Staged(bytes) => device.stage(bytes, captured_ns)?,
            Target::Dropped => {
                device.state.drop_new();
                device.state.metrics.frame_dropped(DropCause::Newest);
                return Ok(Sent::Dropped);
            }
        };
        device.shared.pump_if_needed(&device.state);
        Ok(Sent::Accepted { packet_number })
    }

    /// Writes the whole frame and sends it.
    ///
    /// # Errors
    /// As for [`FrameWriter::send`]; [`SourceError::Incomplete`] if `frame` has another length.
    pub fn send_bytes(mut self, frame: &[u8]) -> Result<Sent, SourceError> {
        if frame.len() != self.bytes - self.filled {
            return Err(SourceError::Incomplete {
                filled: self.filled + frame.len(),
                bytes: self.bytes,
            });
        }
        self.put(frame);
        self.send()
    }

    /// How many bytes are missing.
    pub(super) fn bytes_left(&self) -> usize {
        self.bytes - self.filled
    }

    /// Notes the time if these are the first bytes.
    fn stamp(&mut self) {
        self.capture_time_ns.get_or_insert_with(now_unix_ns);
    }

    pub(super) fn put(&mut self, data: &[u8]) {
        self.stamp();
        match &mut self.target {
            Target::Block(block, _) => {
                let written = block.memory().write_at(self.filled, data);
                debug_assert!(written.is_ok(), "the caller checked the length");
            }
            Target::Staged(bytes) => bytes.extend_from_slice(data),
            Target::Dropped => {}
        }
        self.filled += data.len();
    }
}

impl io::Write for FrameWriter<'_> {
    /// Takes as much as the frame has left; 0 when it is full.
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = data.len().min(self.bytes - self.filled);
        self.put(&data[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
