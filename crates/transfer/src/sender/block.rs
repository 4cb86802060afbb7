//! A block that is being filled.
use super::Shared;
use super::error::{Broken, CommitFailure};
use crate::checksum::crc32c_of;
use crate::header::{BlockHeader, FLAG_CRC, FLAG_SEGMENTED};
use crate::inline::INLINE_BYTES;
use crate::layout::padded;
use catchment_verbs::bias::BiasedArc;
use catchment_verbs::mem::{MemError, VolatileSlice};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

/// In place of the slot of a block that was committed.
const COMMITTED: u32 = u32::MAX;

/// The source's description of a block's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockMeta {
    /// Number of the frame in its stream, without gaps.
    pub packet_number: u64,
    /// Bytes of the whole frame.
    pub frame_bytes: u64,
    /// Where in the frame this block's payload begins.
    pub frame_offset: u64,
    /// When the frame was captured, nanoseconds of CLOCK_REALTIME.
    pub capture_time_ns: u64,
    /// Packet numbers directly before this one that were dropped on purpose.
    pub skipped: u32,
    /// Only [`crate::header::APPLICATION_FLAGS`].
    pub flags: u16,
}

/// A block was not committed. Returns it, with its bytes.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct CommitError {
    /// The block. Dropping it frees its slot.
    pub block: WriteBlock,
    /// Why.
    #[source]
    pub reason: CommitFailure,
}

/// A claimed block: room for a payload in registered memory. Dropping it without a commit frees the
/// slot. It stays readable after the session has ended.
///
/// Two words, so that it moves in registers. What a move has to copy through memory, just after it was
/// stored there in other pieces, waits until all stores before it are done, those to lines of the receiver too.
/// Stream and room are kept for the slot.
pub struct WriteBlock {
    shared: BiasedArc<Shared>,
    /// The slot, and above it the payload bytes.
    place: u64,
}

impl WriteBlock {
    #[inline]
    pub(super) fn new(
        shared: BiasedArc<Shared>,
        slot: u32,
        stream: u32,
        payload_bytes: u32,
    ) -> Self {
        // Inline, as far as is known yet.
        let is_inline = payload_bytes <= INLINE_BYTES && shared.gate.is_none();
        let room_bytes = if is_inline { 0 } else { padded(payload_bytes) };
        // The slot is the caller's: nobody else looks at this.
        let info = &shared.slots.info[slot as usize];
        info.stream.store(stream, Ordering::Relaxed);
        info.room_bytes.store(room_bytes, Ordering::Relaxed);
        Self { shared, place: u64::from(slot) | u64::from(payload_bytes) << 32 }
    }

    /// Returns the payload's memory: exactly the bytes that a commit sends.
    #[inline]
    pub fn memory(&self) -> VolatileSlice<'_> {
        self.shared.data.payload(self.slot(), self.room_bytes(), self.bytes())
    }

    /// Returns the number of payload bytes that a commit sends.
    #[inline]
    pub fn bytes(&self) -> u32 {
        (self.place >> 32) as u32
    }

    #[inline]
    fn room_bytes(&self) -> u32 {
        self.shared.room_bytes(self.slot())
    }

    /// Returns the stream it was claimed for.
    #[inline]
    pub fn stream(&self) -> u32 {
        self.shared.slots.info[self.slot() as usize].stream.load(Ordering::Relaxed)
    }

    /// Returns its slot.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.place as u32
    }

    /// Copies `data` to `offset` of the payload.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; nothing is written then.
    #[inline]
    pub fn write_at(&mut self, offset: usize, data: &[u8]) -> Result<(), MemError> {
        self.memory().write_at(offset, data)
    }

    /// Reads from a file or pipe straight into the payload at `offset`, and returns the number of bytes;
    /// 0 at the end of the file, or when the payload is full.
    ///
    /// # Errors
    /// Those of `read(2)`.
    pub fn read_from_fd(&mut self, offset: usize, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let rest = (self.bytes() as usize).saturating_sub(offset);
        if rest == 0 {
            return Ok(0);
        }
        self.memory().subslice(offset, rest).map_err(io::Error::other)?.read_from_fd(fd)
    }

    /// Shortens the payload to its first `bytes`, when there is less than was reserved.
    pub fn truncate(&mut self, bytes: u32) {
        self.place = u64::from(self.slot()) | u64::from(self.bytes().min(bytes)) << 32;
    }

    /// Sends the block, with a CRC32C of the payload if `crc`, or if the block is longer than the
    /// device's longest message.
    ///
    /// When this returns, the block is posted or waits for the queue; the sender keeps it until the
    /// collector has released it.
    ///
    /// # Errors
    /// [`CommitError`] with the block, when the metadata are wrong or the session is over.
    #[inline(always)]
    pub fn commit(mut self, meta: &BlockMeta, crc: bool) -> Result<(), CommitError> {
        match self.try_commit(meta, crc) {
            Ok(()) => {
                self.place = COMMITTED.into();
                Ok(())
            }
            Err(reason) => Err(CommitError { block: self, reason }),
        }
    }

    #[inline(always)]
    fn try_commit(&mut self, meta: &BlockMeta, crc: bool) -> Result<(), CommitFailure> {
        self.shared.alive().map_err(CommitFailure::Broken)?;
        let header = self.header(meta, crc);
        header.check(&self.shared.layout)?;
        if header.room_bytes != self.room_bytes() {
            self.move_payload(header.room_bytes);
        }
        self.shared.commit(self.slot(), &header);
        Ok(())
    }

    /// Returns the header. In place the payload stays where it was filled, if it can; a copy is made as short
    /// as possible.
    #[inline(always)]
    fn header(&self, meta: &BlockMeta, crc: bool) -> BlockHeader {
        let padded = padded(self.bytes());
        let parts = self.shared.gate.is_some() || self.shared.data.segments(padded);
        let ours = match (parts, crc) {
            (true, _) => FLAG_CRC | FLAG_SEGMENTED,
            (false, true) => FLAG_CRC,
            (false, false) => 0,
        };
        let mut header = BlockHeader {
            stream: self.stream(),
            payload_bytes: self.bytes(),
            packet_number: meta.packet_number,
            frame_bytes: meta.frame_bytes,
            frame_offset: meta.frame_offset,
            capture_time_ns: meta.capture_time_ns,
            crc32c: if ours & FLAG_CRC != 0 { crc32c_of(&self.memory()) } else { 0 },
            skipped: meta.skipped,
            flags: meta.flags & !(FLAG_CRC | FLAG_SEGMENTED) | ours,
            room_bytes: self.room_bytes(),
        };
        let is_in_place = self.shared.data.is_in_place();
        if self.room_bytes() == 0 || !is_in_place {
            header.room_bytes = if header.fits_inline() { 0 } else { padded };
        }
        header
    }

    /// Moves the payload to where it begins so far before the trailer.
    fn move_payload(&mut self, room_bytes: u32) {
        let data = &self.shared.data;
        let from = data.payload(self.slot(), self.room_bytes(), self.bytes());
        let to = data.payload(self.slot(), room_bytes, self.bytes());
        to.copy_from(0, from).expect("both are as long as the payload");
        let info = &self.shared.slots.info[self.slot() as usize];
        info.room_bytes.store(room_bytes, Ordering::Relaxed);
    }

    /// Checks that the session in which it was claimed is alive.
    ///
    /// # Errors
    /// [`Broken`] with the reason.
    pub fn check(&self) -> Result<(), Broken> {
        self.shared.alive()
    }
}

impl Drop for WriteBlock {
    #[inline]
    fn drop(&mut self) {
        if self.slot() != COMMITTED {
            self.shared.put_back(self.stream(), self.slot());
        }
    }
}

impl std::fmt::Debug for WriteBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteBlock")
            .field("slot", &self.slot())
            .field("stream", &self.stream())
            .field("payload_bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
