//! Sizes of a channel.
use crate::geometry::Geometry;
use crate::{ChannelError, Mode};
use catchment_transfer::layout::LINE_BYTES;

/// Most slots of an end: an immediate has 16 bits for their number.
pub const MAX_BLOCKS: u32 = 32_768;

/// Sizes of a channel: the same at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelShape {
    /// Messages that can be outstanding in each direction.
    pub blocks: u32,
    /// Longest message, in bytes.
    pub payload_bytes: u32,
    /// Bytes behind the slots that the peer may READ and WRITE.
    pub shared_bytes: u32,
    /// Send requests outstanding at once; at least 4.
    pub max_send_wr: u32,
    /// How messages travel.
    pub mode: Mode,
}

impl ChannelShape {
    /// Returns a shape without shared memory, with a send queue of 128 requests.
    pub fn new(blocks: u32, payload_bytes: u32) -> Self {
        Self { blocks, payload_bytes, shared_bytes: 0, max_send_wr: 128, mode: Mode::WriteImm }
    }

    /// Returns the same with messages that travel in this mode.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Returns the same with so much shared memory.
    #[must_use]
    pub fn with_shared(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    pub(crate) fn geometry(&self) -> Result<Geometry, ChannelError> {
        if self.blocks > MAX_BLOCKS {
            return Err(ChannelError::Blocks(self.blocks));
        }
        Ok(Geometry::new(self.blocks, self.payload_bytes, 1)?)
    }

    /// Returns the number of receives posted with one call, where they need no memory.
    pub fn receive_list(&self) -> u32 {
        match self.mode {
            Mode::WriteImm => self.blocks.div_ceil(2),
            Mode::Write | Mode::Send => 1,
        }
    }

    /// Returns the number of receives: one for every message of the peer, one for every notice of
    /// released slots, and a list that is not reposted yet. Where messages take none: for a sleep and a ring.
    pub fn receives(&self) -> u32 {
        match self.mode {
            Mode::WriteImm => 2 * self.blocks + self.receive_list(),
            Mode::Write => 2 + self.receive_list(),
            Mode::Send => 2 * self.blocks,
        }
    }

    /// Returns the layout of what arrives: in [`Mode::Send`] a slot for each receive.
    pub(crate) fn arriving(&self, geometry: &Geometry) -> Geometry {
        geometry.with_windows(if self.mode == Mode::Send { 2 } else { 1 })
    }

    /// Returns where the credit word is, or would be: behind the slots.
    pub(crate) fn credit_offset(&self, geometry: &Geometry) -> usize {
        self.arriving(geometry).total_bytes()
    }

    /// Returns where the shared memory begins: behind the slots, and in [`Mode::Write`] the line of the credit word.
    pub(crate) fn shared_offset(&self, geometry: &Geometry) -> usize {
        let line = if self.mode == Mode::Write { LINE_BYTES as usize } else { 0 };
        self.credit_offset(geometry) + line
    }
}
