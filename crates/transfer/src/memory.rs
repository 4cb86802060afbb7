//! The slot protocol's memory in production: a mapped ring.
use crate::commit::HEADER_WORDS;
use crate::header::HEADER_BYTES;
use crate::inline;
use crate::layout::RingLayout;
use crate::slot::SlotMemory;
use catchment_verbs::mem::{MemError, RegionSlice, VolatileSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All accesses stay within a ring whose size was checked when it was made.
const INSIDE: &str = "a slot inside of the ring";

/// Where the header of an inline block begins in its line.
const INLINE_BYTES: usize = inline::INLINE_BYTES as usize;

/// A ring in mapped memory: the receiver's own, or the peer's through a window.
#[derive(Debug, Clone)]
pub(crate) struct RingMemory {
    bytes: RegionSlice,
    pub(crate) layout: RingLayout,
}

impl RingMemory {
    /// Checks the memory and wraps it.
    ///
    /// # Errors
    /// When the memory is too small for the layout, not aligned to lines, or read-only.
    pub(crate) fn new(bytes: RegionSlice, layout: RingLayout) -> Result<Self, MemError> {
        let memory = bytes.memory();
        memory.subslice(0, layout.total_bytes())?;
        if !memory.addr().is_multiple_of(u64::from(crate::layout::LINE_BYTES)) {
            return Err(MemError::Misaligned {
                addr: memory.addr(),
                align: crate::layout::LINE_BYTES as usize,
            });
        }
        memory.atomic_u8(0)?;
        Ok(Self { bytes, layout })
    }

    #[inline]
    pub(crate) fn whole(&self) -> VolatileSlice<'_> {
        self.bytes.memory()
    }

    /// Returns the piece of a slot that begins `room_bytes` before the trailer.
    #[inline]
    pub(crate) fn payload(&self, slot: u32, room_bytes: u32, bytes: u32) -> VolatileSlice<'_> {
        let offset = self.layout.trailer_offset(slot) - room_bytes as usize;
        self.whole().subslice(offset, bytes as usize).expect(INSIDE)
    }

    /// Returns a piece of the ring that stays mapped.
    pub(crate) fn piece(&self, offset: usize, bytes: usize) -> RegionSlice {
        let region = self.bytes.region();
        let start = (self.bytes.memory().addr() - region.addr()) as usize;
        RegionSlice::new(Arc::clone(region), start + offset, bytes).expect(INSIDE)
    }

    /// Zeroes both status arrays and all commit words.
    pub(crate) fn clear(&self) {
        self.whole().subslice(0, self.layout.blocks_offset()).expect(INSIDE).fill(0).expect(INSIDE);
        for slot in 0..self.layout.blocks() {
            self.store_commit(slot, 0);
        }
    }
}

impl SlotMemory for RingMemory {
    #[inline]
    fn load_full(&self, slot: u32) -> u8 {
        let offset = self.layout.full_offset() + slot as usize;
        self.whole().load_u8(offset, Ordering::Acquire).expect(INSIDE)
    }

    #[inline]
    fn store_full(&self, slot: u32, value: u8) {
        let offset = self.layout.full_offset() + slot as usize;
        self.whole().atomic_u8(offset).expect(INSIDE).store(value, Ordering::Release);
    }

    #[inline]
    fn load_free(&self, slot: u32) -> u8 {
        let offset = self.layout.free_offset() + slot as usize;
        self.whole().load_u8(offset, Ordering::Acquire).expect(INSIDE)
    }

    #[inline]
    fn store_free(&self, slot: u32, value: u8) {
        let offset = self.layout.free_offset() + slot as usize;
        self.whole().atomic_u8(offset).expect(INSIDE).store(value, Ordering::Release);
    }

    #[inline]
    fn load_commit(&self, slot: u32) -> u64 {
        let offset = self.layout.commit_offset(slot);
        u64::from_le(self.whole().load_u64(offset, Ordering::Acquire).expect(INSIDE))
    }

    #[inline]
    fn store_commit(&self, slot: u32, word: u64) {
        let offset = self.layout.commit_offset(slot);
        self.whole().atomic_u64(offset).expect(INSIDE).store(word.to_le(), Ordering::Release);
    }

    #[inline]
    fn read_header(&self, slot: u32) -> [u64; HEADER_WORDS] {
        let (whole, offset) = (self.whole(), self.layout.trailer_offset(slot));
        std::array::from_fn(|i| {
            let word = whole.load_u64(offset + 8 * i, Ordering::Relaxed);
            u64::from_le(word.expect(INSIDE))
        })
    }

    #[inline]
    fn write_header(&self, slot: u32, words: &[u64; HEADER_WORDS]) {
        // As bytes, in one copy, which waits until the words are put together, and so until what was
        // stored before is done. Eight stores of words do not wait, and cost a fifth of the throughput of
        // 4 KiB blocks: the line is taken by the polling receiver between them.
        let trailer = crate::header::encode_trailer(words, 0);
        let offset = self.layout.trailer_offset(slot);
        let header = if inline::is_inline(words) {
            self.whole().write_at(offset + INLINE_BYTES, &trailer[INLINE_BYTES..HEADER_BYTES])
        } else {
            self.whole().write_at(offset, &trailer[..HEADER_BYTES])
        };
        header.expect(INSIDE);
    }
}
