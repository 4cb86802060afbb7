//! The layout of a ring.
//!
//! Both sides compute the same offsets from two numbers, and compare a hash of the result when
//! they connect, so that a difference between two versions is found before the first byte moves.
use crate::commit;

/// Bytes that one slot's trailer takes: header and commit word.
pub const TRAILER_BYTES: u32 = 64;
/// Alignment of payloads, status arrays and slots.
pub const LINE_BYTES: u32 = 64;
/// Most slots of a ring.
pub const MAX_BLOCKS: u32 = 65_536;
/// Fewest bytes of a slot: one line of payload and the trailer.
pub const MIN_BLOCK_BYTES: u32 = 2 * LINE_BYTES;
/// Most bytes of a slot.
pub const MAX_BLOCK_BYTES: u32 = 1 << 30;
/// Slots of at least this size are reused as soon as possible, while they are still in the cache.
pub const LARGE_BLOCK_BYTES: u32 = 64 << 10;
/// The first slot starts on a multiple of this.
pub const BLOCKS_ALIGN: usize = 4096;

/// Rings of up to so many slots have no hints: the receiver looks at every commit word.
pub const SCANNED_BLOCKS: u32 = LINE_BYTES;

const LAYOUT_VERSION: u64 = 3;

/// A ring cannot have this shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Too few or too many slots.
    #[error("a ring of {0} blocks is not possible: use 1 to {MAX_BLOCKS}")]
    Blocks(u32),
    /// A slot size out of range or not in whole lines.
    #[error(
        "blocks of {0} bytes are not possible: use a multiple of {LINE_BYTES} from \
         {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}"
    )]
    BlockBytes(u32),
    /// A payload size of the paper's format out of range.
    #[error("payloads of {0} bytes are not possible: use 1 to {MAX_BLOCK_BYTES}")]
    PayloadBytes(u32),
    /// Blocks whose position and length do not fit an immediate.
    #[error(
        "{blocks} blocks of {payload_bytes} bytes do not fit an immediate: with so many blocks, at \
         most {limit} bytes do"
    )]
    Immediate {
        /// Blocks asked for.
        blocks: u32,
        /// Payload bytes asked for.
        payload_bytes: u32,
        /// Most payload bytes with so many blocks.
        limit: u32,
    },
    /// More memory than this machine can address.
    #[error("a ring of {blocks} blocks of {block_bytes} bytes does not fit the address space")]
    TooLarge {
        /// Slots asked for.
        blocks: u32,
        /// Bytes of a slot.
        block_bytes: u32,
    },
}

/// Shape of a ring in the product format: two status arrays, then the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    blocks: u32,
    block_bytes: u32,
    status_bytes: usize,
    blocks_offset: usize,
    total_bytes: usize,
}

impl RingLayout {
    /// Creates a ring of `blocks` slots of `block_bytes` each, trailer included.
    ///
    /// # Errors
    /// [`LayoutError`] with the limit that is exceeded.
    pub fn new(blocks: u32, block_bytes: u32) -> Result<Self, LayoutError> {
        if !(1..=MAX_BLOCKS).contains(&blocks) {
            return Err(LayoutError::Blocks(blocks));
        }
        let whole_lines = block_bytes.is_multiple_of(LINE_BYTES);
        if !whole_lines || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block_bytes) {
            return Err(LayoutError::BlockBytes(block_bytes));
        }
        let status_bytes = (blocks as usize).next_multiple_of(LINE_BYTES as usize);
        let blocks_offset = (2 * status_bytes).next_multiple_of(BLOCKS_ALIGN);
        let total_bytes = (blocks as usize)
            .checked_mul(block_bytes as usize)
            .and_then(|bytes| bytes.checked_add(blocks_offset))
            .ok_or(LayoutError::TooLarge { blocks, block_bytes })?;
        Ok(Self { blocks, block_bytes, status_bytes, blocks_offset, total_bytes })
    }

    /// Returns the smallest block size whose payload holds `payload_bytes`.
    ///
    /// # Errors
    /// [`LayoutError::PayloadBytes`] beyond [`MAX_BLOCK_BYTES`].
    pub fn block_bytes_for(payload_bytes: u32) -> Result<u32, LayoutError> {
        let error = LayoutError::PayloadBytes(payload_bytes);
        if payload_bytes > MAX_BLOCK_BYTES - TRAILER_BYTES {
            return Err(error);
        }
        let bytes = padded(payload_bytes) + TRAILER_BYTES;
        Ok(bytes.max(MIN_BLOCK_BYTES))
    }

    /// Returns the number of slots.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of bytes of a slot, trailer included.
    #[inline]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Returns the most payload bytes of one block.
    #[inline]
    pub fn max_payload_bytes(&self) -> u32 {
        self.block_bytes - TRAILER_BYTES
    }

    /// Returns the number of bytes of one status array with its padding.
    #[inline]
    pub fn status_bytes(&self) -> usize {
        self.status_bytes
    }

    /// Returns whether the sender writes hints into `full[]`. In a ring of up to [`SCANNED_BLOCKS`] slots
    /// a block is one WRITE, and the receiver finds it by its commit word alone.
    #[inline]
    pub fn has_hints(&self) -> bool {
        self.blocks > SCANNED_BLOCKS
    }

    /// Returns the offset of `full[]`, which only the sender writes.
    #[inline]
    pub fn full_offset(&self) -> usize {
        0
    }

    /// Returns the offset of `free[]`, which only the receiver writes.
    #[inline]
    pub fn free_offset(&self) -> usize {
        self.status_bytes
    }

    /// Returns the offset of slot 0.
    #[inline]
    pub fn blocks_offset(&self) -> usize {
        self.blocks_offset
    }

    /// Returns the offset of a slot.
    #[inline]
    pub fn slot_offset(&self, slot: u32) -> usize {
        self.blocks_offset + slot as usize * self.block_bytes as usize
    }

    /// Returns the offset of a slot's trailer: the last 64 bytes of the slot.
    #[inline]
    pub fn trailer_offset(&self, slot: u32) -> usize {
        self.slot_offset(slot) + self.max_payload_bytes() as usize
    }

    /// Returns the offset of a slot's commit word: the last eight bytes of the slot.
    #[inline]
    pub fn commit_offset(&self, slot: u32) -> usize {
        self.trailer_offset(slot) + (TRAILER_BYTES - 8) as usize
    }

    /// Returns the number of bytes of the whole ring.
    #[inline]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Returns the hash that both sides compare when they connect. Specified in
    /// `docs/spec/block.md`.
    pub fn hash(&self) -> u64 {
        commit::mix(&[
            LAYOUT_VERSION,
            u64::from(self.blocks),
            u64::from(self.block_bytes),
            self.full_offset() as u64,
            self.free_offset() as u64,
            self.blocks_offset as u64,
            self.total_bytes as u64,
            u64::from(TRAILER_BYTES),
        ])
    }
}

/// Returns the next multiple of 64.
#[inline]
pub fn padded(payload_bytes: u32) -> u32 {
    payload_bytes.next_multiple_of(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn impossible_shapes_are_refused() {
        assert_eq!(RingLayout::new(0, 128), Err(LayoutError::Blocks(0)));
        assert_eq!(RingLayout::new(65_537, 128), Err(LayoutError::Blocks(65_537)));
        for bytes in [0, 64, 127, 129, MAX_BLOCK_BYTES + 64] {
            assert_eq!(RingLayout::new(1, bytes), Err(LayoutError::BlockBytes(bytes)));
        }
        assert!(RingLayout::new(MAX_BLOCKS, MAX_BLOCK_BYTES).is_ok());
        assert!(RingLayout::block_bytes_for(MAX_BLOCK_BYTES - 63).is_err());
    }

    #[test]
    fn the_smallest_ring_byte_by_byte() {
        let layout = RingLayout::new(3, 256).unwrap();
        assert_eq!((layout.full_offset(), layout.free_offset()), (0, 64));
        assert_eq!(layout.blocks_offset(), 4096);
        assert_eq!(layout.slot_offset(2), 4096 + 512);
        assert_eq!(layout.trailer_offset(0), 4096 + 192);
        assert_eq!(layout.commit_offset(0), 4096 + 248);
        assert_eq!(layout.total_bytes(), 4096 + 768);
        assert_eq!(layout.hash(), 0xa648_06f4_dbb7_7710);
    }

    #[test]
    fn layouts_that_differ_have_hashes_that_differ() {
        let hash = |blocks, bytes| RingLayout::new(blocks, bytes).unwrap().hash();
        assert_ne!(hash(3, 256), hash(4, 256));
        assert_ne!(hash(3, 256), hash(3, 320));
        assert_ne!(hash(256, 128), hash(128, 256));
    }

    proptest! {
        #[test]
        fn areas_are_aligned_and_do_not_overlap(blocks in 1..=MAX_BLOCKS, lines in 2u32..=4096) {
            let layout = RingLayout::new(blocks, lines * 64).unwrap();
            prop_assert!(layout.full_offset() + blocks as usize <= layout.free_offset());
            prop_assert!(layout.free_offset() + blocks as usize <= layout.blocks_offset());
            prop_assert_eq!(layout.free_offset() % 64, 0);
            prop_assert_eq!(layout.blocks_offset() % 4096, 0);
            prop_assert_eq!(layout.commit_offset(blocks - 1) + 8, layout.total_bytes());
        }

        #[test]
        fn a_payload_fits_the_block_size_made_for_it(payload in 0u32..1 << 25) {
            let bytes = RingLayout::block_bytes_for(payload).unwrap();
            let layout = RingLayout::new(1, bytes).unwrap();
            prop_assert!(layout.max_payload_bytes() >= payload);
            prop_assert!(bytes == MIN_BLOCK_BYTES || layout.max_payload_bytes() < payload + 64);
        }
    }
}
