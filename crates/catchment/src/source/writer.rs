//! Frames that are being filled.
//!
//! [`FrameContents`] is where the bytes go and how many there are. A
//! [`FrameWriter`](super::FrameWriter) borrows the device that it will be sent through; an
//! [`OwnedFrameWriter`] does not, so it can go anywhere.
use super::SourceError;
use super::link::Link;
use super::shared::DeviceState;
use catchment_transfer::WriteBlock;
use catchment_transfer::header::unix_ns;
use catchment_verbs::mem::VolatileSlice;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// Where the bytes of a frame go.
pub(super) enum Target {
    /// A block: of the collector's memory where the provider can map it, else of ours.
    Block(WriteBlock, Arc<Link>),
    /// Memory of our own, to be sent by the pump.
    Staged(Vec<u8>),
    /// Nowhere.
    Dropped,
}

impl Target {
    /// Memory for a frame that cannot go straight into a block.
    pub(super) fn staged(bytes: usize) -> Self {
        Self::Staged(Vec::with_capacity(bytes))
    }
}

/// The bytes of a frame that is being filled, through [`io::Write`] or in place.
///
/// Dropping them unsent frees the block; no packet number is used.
pub struct FrameContents {
    target: Target,
    bytes: usize,
    filled: usize,
    /// By default the moment of the first byte.
    capture_time_ns: Option<u64>,
}

impl FrameContents {
    pub(super) fn new(bytes: usize, target: Target) -> Self {
        Self { target, bytes, filled: 0, capture_time_ns: None }
    }

    /// Length of the frame in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets when the frame was captured, exact to the nanosecond; by default the moment of its
    /// first byte. Times before 1970 become 1970.
    pub fn set_capture_time(&mut self, time: SystemTime) {
        self.capture_time_ns = Some(unix_ns(time));
    }

    /// Returns whether the frame will be dropped, so that filling it is pointless.
    pub fn is_dropped(&self) -> bool {
        matches!(self.target, Target::Dropped)
    }

    /// The memory that is not filled yet, to fill it in place; then say how much with
    /// [`FrameContents::advance`]. `None` where the frame is not in registered memory: use
    /// [`io::Write`] then.
    pub fn memory(&self) -> Option<VolatileSlice<'_>> {
        match &self.target {
            Target::Block(block, _) => {
                block.memory().subslice(self.filled, self.bytes - self.filled).ok()
            }
            Target::Staged(_) | Target::Dropped => None,
        }
    }

    /// Counts bytes that were written through [`FrameContents::memory`].
    ///
    /// # Panics
    /// If that is more than the frame has left.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes - self.filled, "advance beyond the frame's end");
        self.stamp();
        self.filled += bytes;
    }

    /// Returns what to send, and when it was captured.
    pub(super) fn into_target(self) -> Result<(Target, u64), SourceError> {
        if self.filled != self.bytes && !self.is_dropped() {
            return Err(SourceError::Incomplete { filled: self.filled, bytes: self.bytes });
        }
        let captured_ns = self.capture_time_ns.unwrap_or_else(|| unix_ns(SystemTime::now()));
        Ok((self.target, captured_ns))
    }

    /// Writes all bytes that are missing.
    pub(super) fn put_rest(&mut self, rest: &[u8]) -> Result<(), SourceError> {
        if rest.len() != self.bytes_left() {
            return Err(SourceError::Incomplete {
                filled: self.filled + rest.len(),
                bytes: self.bytes,
            });
        }
        self.put(rest);
        Ok(())
    }

    /// Returns how many bytes are missing.
    pub(super) fn bytes_left(&self) -> usize {
        self.bytes - self.filled
    }

    /// Notes the time if these are the first bytes.
    fn stamp(&mut self) {
        self.capture_time_ns.get_or_insert_with(|| unix_ns(SystemTime::now()));
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

impl io::Write for FrameContents {
    /// Takes as much as the frame has left; 0 when it is full.
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = data.len().min(self.bytes_left());
        self.put(&data[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A frame being filled that borrows nothing: it can be filled by another thread, or across a
/// language boundary. [`Device::send`](super::Device::send) of its device sends it. Dropping it unsent
/// frees the block; no packet number is used.
///
/// ```no_run
/// # fn example(mut device: catchment::source::Device) -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write as _;
///
/// let mut frame = device.frame_owned(1000)?;
/// let filling = std::thread::spawn(move || frame.write_all(&[7; 1000]).map(|()| frame));
/// let frame = filling.join().expect("the thread panicked")?;
/// device.send(frame)?;
/// # Ok(())
/// # }
/// ```
pub struct OwnedFrameWriter {
    device: Arc<DeviceState>,
    contents: FrameContents,
}

impl OwnedFrameWriter {
    pub(super) fn new(device: Arc<DeviceState>, contents: FrameContents) -> Self {
        Self { device, contents }
    }

    /// Name of the device that it is for.
    pub fn device(&self) -> &str {
        self.device.name.as_str()
    }

    /// Returns the contents if they are for this device.
    pub(super) fn into_contents_of(
        self,
        device: &Arc<DeviceState>,
    ) -> Result<FrameContents, SourceError> {
        if Arc::ptr_eq(&self.device, device) {
            return Ok(self.contents);
        }
        Err(SourceError::OtherDevice {
            frame_of: self.device().to_owned(),
            device: device.name.as_str().to_owned(),
        })
    }
}

/// Both writers are their contents, and what sends them.
macro_rules! writes_contents {
    ($writer:ty) => {
        impl std::ops::Deref for $writer {
            type Target = FrameContents;

            fn deref(&self) -> &FrameContents {
                &self.contents
            }
        }

        impl std::ops::DerefMut for $writer {
            fn deref_mut(&mut self) -> &mut FrameContents {
                &mut self.contents
            }
        }

        impl std::io::Write for $writer {
            fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
                self.contents.write(data)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl crate::input::FrameBuffer for $writer {
            fn fill_from(
                &mut self,
                from: std::os::fd::BorrowedFd<'_>,
                bytes: usize,
            ) -> Result<usize, crate::input::FillError> {
                self.contents.fill_from(from, bytes)
            }
        }
    };
}

pub(super) use writes_contents;
writes_contents!(OwnedFrameWriter);
