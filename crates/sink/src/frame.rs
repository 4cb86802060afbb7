//! A frame as a collector hands it out.
use crate::{CountedBlock, Staged};
use catchment_verbs::mem::VolatileSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

/// A received frame: its bytes and where they come from.
///
/// A frame that fits one block still lies in the collector's registered memory, where the source
/// (or its network adapter) wrote it. Dropping the frame releases the block to the source, so a
/// program may keep frames for a while, in any order, and gets no new ones of that device once it
/// holds all blocks that the device may use.
pub struct Frame {
    device: Arc<str>,
    packet_number: u64,
    capture_time_ns: u64,
    verified: bool,
    bytes: FrameBytes,
}

/// Where the bytes of a frame are.
pub enum FrameBytes {
    /// In one block of registered memory.
    Block(CountedBlock),
    /// Assembled from several blocks. The last block is released with the frame.
    Assembled {
        /// All of them.
        bytes: Vec<u8>,
        /// The block that completed it.
        last: Option<CountedBlock>,
        /// Its share of the memory for such frames.
        staged: Option<Staged>,
    },
}

impl Frame {
    /// Makes a frame of what a collector received: `capture_time_ns` counts from 1970, by the source's clock;
    /// `verified` where a checksum came with it and was right.
    #[inline]
    pub fn new(
        device: Arc<str>,
        packet_number: u64,
        capture_time_ns: u64,
        verified: bool,
        bytes: FrameBytes,
    ) -> Self {
        Self { device, packet_number, capture_time_ns, verified, bytes }
    }

    /// Drops the frame so that the source takes it for undelivered and sends it again.
    pub fn abandon(self) {
        match self.bytes {
            FrameBytes::Block(block) => block.abandon(),
            FrameBytes::Assembled { last, .. } => last.into_iter().for_each(CountedBlock::abandon),
        }
    }

    /// Tells the source that this frame is kept for long: the state of its block becomes 2, unavailable.
    /// The source goes on with its other blocks either way. Dropping the frame still releases the block.
    ///
    /// The collector does so itself with a frame that its sink refused, until the sink takes it.
    pub fn hold(&mut self) {
        match &mut self.bytes {
            FrameBytes::Block(block) => block.hold(),
            FrameBytes::Assembled { last, .. } => last.iter_mut().for_each(CountedBlock::hold),
        }
    }

    /// Returns the block that it lies in, where others can still write.
    #[inline]
    pub fn block(&self) -> Option<&CountedBlock> {
        match &self.bytes {
            FrameBytes::Block(block) => Some(block),
            FrameBytes::Assembled { .. } => None,
        }
    }

    /// Returns the name of the device that captured it.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the number of the frame in its device's stream. A missing number was dropped by the
    /// source on purpose, or is lost; the counters say which.
    #[inline]
    pub fn packet_number(&self) -> u64 {
        self.packet_number
    }

    /// Returns when the source captured it, by the source's clock.
    pub fn capture_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.capture_time_ns)
    }

    /// Returns [`Frame::capture_time`] in nanoseconds since 1970.
    #[inline]
    pub fn capture_time_ns(&self) -> u64 {
        self.capture_time_ns
    }

    /// Returns whether the source sent a checksum, which was correct: a frame with a wrong one is not
    /// delivered.
    #[inline]
    pub fn is_verified(&self) -> bool {
        self.verified
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        match &self.bytes {
            FrameBytes::Block(block) => block.payload().bytes(),
            FrameBytes::Assembled { bytes, .. } => bytes.len(),
        }
    }

    /// Copies `out.len()` bytes from `offset` on.
    ///
    /// # Panics
    /// If the range is not in the frame, as slicing does.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) {
        match &self.bytes {
            FrameBytes::Block(block) => match block.payload().read_at(offset, out) {
                Ok(()) => {}
                Err(error) => panic!("read_at: {error}"),
            },
            FrameBytes::Assembled { bytes, .. } => {
                out.copy_from_slice(&bytes[offset..offset + out.len()]);
            }
        }
    }

    /// Copies all bytes to a new vector.
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.bytes {
            FrameBytes::Block(block) => block.payload().to_vec(),
            FrameBytes::Assembled { bytes, .. } => bytes.clone(),
        }
    }

    /// Returns the registered memory, for a frame of one block. See [`VolatileSlice`] for its rules.
    pub fn memory(&self) -> Option<VolatileSlice<'_>> {
        match &self.bytes {
            FrameBytes::Block(block) => Some(block.payload()),
            FrameBytes::Assembled { .. } => None,
        }
    }

    /// Calls `see` with the bytes in order, as plain slices of a few kilobytes.
    pub fn for_each_chunk(&self, mut see: impl FnMut(&[u8])) {
        match &self.bytes {
            FrameBytes::Block(block) => block.payload().for_each_chunk(see),
            FrameBytes::Assembled { bytes, .. } => see(bytes),
        }
    }

    /// Writes the frame to a file or pipe; from registered memory without a copy in this process.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::WriteZero`] if the descriptor takes no more.
    pub fn write_to(&self, fd: impl AsFd) -> io::Result<()> {
        let fd = fd.as_fd();
        let total = self.bytes();
        let mut done = 0;
        while done < total {
            let written = match self.write_some(done, fd) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += written;
        }
        Ok(())
    }

    fn write_some(&self, from: usize, fd: std::os::fd::BorrowedFd<'_>) -> io::Result<usize> {
        match &self.bytes {
            FrameBytes::Block(block) => {
                let payload = block.payload();
                payload
                    .subslice(from, payload.bytes() - from)
                    .map_err(io::Error::other)?
                    .write_to_fd(fd)
            }
            FrameBytes::Assembled { bytes, .. } => Ok(rustix::io::write(fd, &bytes[from..])?),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("device", &self.device)
            .field("packet_number", &self.packet_number)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
