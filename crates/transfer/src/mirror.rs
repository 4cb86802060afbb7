//! One side's own picture of a status array that the other side writes.
//!
//! The reference for a scan: 64 status bytes are compared with 64 bytes of the picture at once,
//! and only those that differ are looked at. Several threads change the picture without a lock:
//! the byte of a slot changes exactly once per generation, so an exclusive-or of the byte before
//! and after it never disturbs the neighbours in its word.
use crate::layout::LINE_BYTES;
use catchment_verbs::mem::VolatileSlice;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS_PER_LINE: usize = 8;

#[derive(Debug)]
pub(crate) struct ByteMirror {
    words: Box<[AtomicU64]>,
    slots: u32,
}

impl ByteMirror {
    /// All bytes zero.
    pub(crate) fn new(slots: u32) -> ByteMirror {
        let words = slots.div_ceil(LINE_BYTES) as usize * WORDS_PER_LINE;
        ByteMirror {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            slots,
        }
    }

    /// Lines of 64 slots.
    #[inline]
    pub(crate) fn lines(&self) -> u32 {
        (self.words.len() / WORDS_PER_LINE) as u32
    }

    /// Changes the byte of a slot, whose value before is known.
    #[inline]
    pub(crate) fn change(&self, slot: u32, before: u8, after: u8) {
        let lane = 8 * (slot % 8);
        let flips = u64::from(before ^ after) << lane;
        self.words[slot as usize / 8].fetch_xor(flips, Ordering::Relaxed);
    }

    /// The slots of a line whose byte in `array` differs from the picture, as bits.
    #[inline]
    pub(crate) fn differing(&self, line: u32, array: &VolatileSlice<'_>) -> u64 {
        let mut reference = [0; LINE_BYTES as usize];
        let first = line as usize * WORDS_PER_LINE;
        let words = &self.words[first..first + WORDS_PER_LINE];
        for (bytes, word) in reference.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let offset = (line * LINE_BYTES) as usize;
        let bits = array.differing_bytes(offset, &reference);
        bits.expect("a line inside of the status array") & self.valid(line)
    }

    /// Bits of a line that stand for a slot: the last line may be padded.
    #[inline]
    fn valid(&self, line: u32) -> u64 {
        let slots = self.slots - line * LINE_BYTES;
        match 1u64.checked_shl(slots) {
            Some(bit) => bit - 1,
            None => u64::MAX,
        }
    }
}

/// The slots that the bits of a line stand for, beginning with `first`, if that is in the line.
pub(crate) fn slots_of(line: u32, bits: u64, first: u32) -> impl Iterator<Item = u32> {
    let base = line * LINE_BYTES;
    let start = if first / LINE_BYTES == line {
        first % LINE_BYTES
    } else {
        0
    };
    let mut rest = bits.rotate_right(start);
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let bit = rest.trailing_zeros();
        rest &= rest - 1;
        Some(base + (bit + start) % LINE_BYTES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_verbs::mem::{Region, RegionOptions};

    #[test]
    fn only_real_slots_that_differ_are_named() {
        let region = Region::alloc(128, RegionOptions::default()).unwrap();
        region.whole().fill(9).unwrap();
        let mirror = ByteMirror::new(67);
        for slot in 0..67 {
            if slot != 5 && slot != 66 {
                mirror.change(slot, 0, 9);
            }
        }
        assert_eq!(mirror.lines(), 2);
        assert_eq!(mirror.differing(0, &region.whole()), 1 << 5);
        assert_eq!(mirror.differing(1, &region.whole()), 1 << 2);
    }

    #[test]
    fn slots_come_in_ring_order_from_the_first() {
        let seen: Vec<u32> = slots_of(1, 1 | 1 << 10 | 1 << 63, 74).collect();
        assert_eq!(seen, [74, 127, 64]);
        let seen: Vec<u32> = slots_of(1, 1 | 1 << 10, 3).collect();
        assert_eq!(seen, [64, 74]);
        assert_eq!(slots_of(0, 0, 0).count(), 0);
    }
}
