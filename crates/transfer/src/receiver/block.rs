//! A block that was received.
use super::Shared;
use crate::checksum::{copy_with_crc, crc32c_of};
use crate::header::BlockHeader;
use crate::slot;
use catchment_verbs::bias::BiasedArc;
use catchment_verbs::mem::VolatileSlice;

/// The payload does not match the checksum of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("payload checksum {computed:#010x}, the source computed {announced:#010x}")]
pub struct CrcMismatch {
    /// What the source computed.
    pub announced: u32,
    /// What this side computed.
    pub computed: u32,
}

/// A block that the receiver owns. Its slot goes back to the source when it is dropped, in any
/// order and from any thread.
///
/// It has no padding, as the sender's block: copying that would stall a move.
pub struct ReceivedBlock {
    shared: BiasedArc<Shared>,
    slot: u32,
    generation: u64,
    /// [`IN_USE`], [`HELD`] or [`ABANDONED`].
    state: u32,
}

const IN_USE: u32 = 0;
/// The source was told that it is kept.
const HELD: u32 = 1;
/// Its slot is not released.
const ABANDONED: u32 = 2;

impl ReceivedBlock {
    #[inline]
    pub(super) fn new(shared: BiasedArc<Shared>, slot: u32, generation: u64) -> Self {
        Self { shared, slot, generation, state: IN_USE }
    }

    /// Returns the header.
    #[inline]
    pub fn header(&self) -> BlockHeader {
        // Nobody writes it while the block is ours: the next block of the slot is taken after its
        // release, and one that the source writes over it is not kept.
        self.shared.notes[self.slot as usize].header()
    }

    /// Returns the payload, in place. A misbehaving source can still change it: copy it out first where
    /// that matters.
    #[inline]
    pub fn payload(&self) -> VolatileSlice<'_> {
        let (room_bytes, payload_bytes) = self.shared.notes[self.slot as usize].extent();
        self.shared.memory.payload(self.slot, room_bytes, payload_bytes)
    }

    /// Returns its slot.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Tells the source that this block is kept for long (state 2), so that it does not count on the
    /// slot. Dropping the block still releases it.
    pub fn hold(&mut self) {
        if self.state == IN_USE {
            self.state = HELD;
            slot::hold(&self.shared.memory, self.slot, self.generation);
        }
    }

    /// Drops this block without releasing its slot: to the source it stays undelivered, and is sent again
    /// in its next session. For blocks that are still here when a session ends.
    pub fn abandon(mut self) {
        self.state = ABANDONED;
    }

    /// Compares the payload with the checksum of its source. A block without one passes.
    ///
    /// # Errors
    /// [`CrcMismatch`].
    pub fn check_crc(&self) -> Result<(), CrcMismatch> {
        match self.header().crc() {
            Some(announced) => compare(announced, crc32c_of(&self.payload())),
            None => Ok(()),
        }
    }

    /// Copies the payload to the beginning of `out` and compares it with its checksum in the same
    /// pass.
    ///
    /// # Errors
    /// [`CrcMismatch`]; the bytes are copied then too.
    ///
    /// # Panics
    /// If `out` is shorter than the payload.
    pub fn copy_out(&self, out: &mut [u8]) -> Result<(), CrcMismatch> {
        let header = self.header();
        let out = &mut out[..header.payload_bytes as usize];
        let payload = self.payload();
        let Some(announced) = header.crc() else {
            payload.read_at(0, out).expect("as long as the payload");
            return Ok(());
        };
        compare(announced, copy_with_crc(&payload, out).expect("as long as the payload"))
    }
}

fn compare(announced: u32, computed: u32) -> Result<(), CrcMismatch> {
    if announced == computed {
        return Ok(());
    }
    Err(CrcMismatch { announced, computed })
}

impl Drop for ReceivedBlock {
    #[inline]
    fn drop(&mut self) {
        if self.state != ABANDONED {
            self.shared.release(self.slot, self.generation);
        }
    }
}

impl std::fmt::Debug for ReceivedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceivedBlock")
            .field("slot", &self.slot)
            .field("generation", &self.generation)
            .field("header", &self.header())
            .finish_non_exhaustive()
    }
}
