//! The layout of a ring in the paper's format.
use catchment_transfer::LayoutError;
use catchment_transfer::layout::{BLOCKS_ALIGN, LINE_BYTES, MAX_BLOCK_BYTES, MAX_BLOCKS};

/// Shape of a ring in the paper's format: one status array, then blocks of a fixed payload. With the bytes of
/// both sides [apart](Self::apart) there are two arrays, which share no cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaperLayout {
    blocks: u32,
    payload_bytes: u32,
    stride: usize,
    released_offset: usize,
    blocks_offset: usize,
    total_bytes: usize,
}

impl PaperLayout {
    pub const HEADER_BYTES: usize = 3;

    pub fn new(blocks: u32, payload_bytes: u32) -> Result<Self, LayoutError> {
        Self::with_arrays(1, blocks, payload_bytes)
    }

    /// The sender's bytes and the receiver's in an array each, which is not the paper's format.
    pub fn apart(blocks: u32, payload_bytes: u32) -> Result<Self, LayoutError> {
        Self::with_arrays(2, blocks, payload_bytes)
    }

    fn with_arrays(arrays: usize, blocks: u32, payload_bytes: u32) -> Result<Self, LayoutError> {
        if !(1..=MAX_BLOCKS).contains(&blocks) {
            return Err(LayoutError::Blocks(blocks));
        }
        if !(1..=MAX_BLOCK_BYTES).contains(&payload_bytes) {
            return Err(LayoutError::PayloadBytes(payload_bytes));
        }
        let line = LINE_BYTES as usize;
        let stride = (Self::HEADER_BYTES + payload_bytes as usize).next_multiple_of(line);
        let array_bytes = (blocks as usize).next_multiple_of(BLOCKS_ALIGN);
        let released_offset = (arrays - 1) * array_bytes;
        let blocks_offset = arrays * array_bytes;
        let total_bytes = (blocks as usize)
            .checked_mul(stride)
            .and_then(|bytes| bytes.checked_add(blocks_offset))
            .ok_or(LayoutError::TooLarge { blocks, block_bytes: payload_bytes })?;
        Ok(Self { blocks, payload_bytes, stride, released_offset, blocks_offset, total_bytes })
    }

    #[inline]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    /// Returns the bytes of a block on the wire: header and payload.
    #[inline]
    pub fn wire_bytes(&self) -> u32 {
        self.payload_bytes + Self::HEADER_BYTES as u32
    }

    /// Returns the distance from one block to the next, in whole lines.
    #[inline]
    pub fn stride(&self) -> usize {
        self.stride
    }

    #[inline]
    pub fn status_offset(&self) -> usize {
        0
    }

    /// Returns where the receiver says that a block is free: in the same bytes, or in the second array.
    #[inline]
    pub fn released_offset(&self) -> usize {
        self.released_offset
    }

    pub fn is_apart(&self) -> bool {
        self.released_offset != self.status_offset()
    }

    #[inline]
    pub fn block_offset(&self, block: u32) -> usize {
        self.blocks_offset + block as usize * self.stride
    }

    /// Returns the bytes of all blocks, without status bytes.
    pub fn blocks_bytes(&self) -> usize {
        self.blocks as usize * self.stride
    }

    #[inline]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_without_payload_are_refused() {
        assert!(PaperLayout::new(3, 0).is_err());
    }

    proptest! {
        #[test]
        fn paper_blocks_do_not_overlap(blocks in 1u32..=300, payload in 1u32..10_000) {
            let layout = PaperLayout::new(blocks, payload).unwrap();
            prop_assert!(blocks as usize <= layout.block_offset(0));
            prop_assert!(layout.stride() >= layout.wire_bytes() as usize);
            prop_assert_eq!(layout.block_offset(blocks - 1) + layout.stride(), layout.total_bytes());
            let apart = PaperLayout::apart(blocks, payload).unwrap();
            prop_assert!(apart.is_apart() && !layout.is_apart());
            prop_assert!(apart.released_offset() >= blocks as usize);
            prop_assert!(apart.block_offset(0) >= apart.released_offset() + blocks as usize);
        }
    }
}
