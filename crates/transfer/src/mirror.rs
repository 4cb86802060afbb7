//! One side's own copy of a status array that the other side writes.
//!
//! The reference for a scan: 64 status bytes are compared with 64 bytes of the copy at once, and
//! only those that differ are processed. Several threads change the copy without a lock: the byte of
//! a slot changes exactly once per generation, so an exclusive-or of the byte before and after it
//! never disturbs the neighbours in its word.
use crate::layout::LINE_BYTES;
use crate::sync::{AtomicU64, Ordering, Threads, Update as _};
use catchment_verbs::mem::VolatileSlice;
use std::ops::{ControlFlow, Range};

const WORDS_PER_LINE: usize = 8;
/// Lines that are compared before any change in them is acted on.
const GROUP: usize = 16;

/// The copy of a status array. Any number of threads may use it at once.
#[derive(Debug)]
pub struct ByteMirror {
    words: Box<[AtomicU64]>,
    slots: u32,
}

impl ByteMirror {
    /// Creates a copy of this many bytes, one for each slot, all zero.
    pub fn new(slots: u32) -> Self {
        let words = slots.div_ceil(LINE_BYTES) as usize * WORDS_PER_LINE;
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), slots }
    }

    #[inline]
    fn lines(&self) -> u32 {
        (self.words.len() / WORDS_PER_LINE) as u32
    }

    /// Changes the byte of a slot, whose value before is known. Only the thread that claimed the slot's
    /// change may do so, once for each. `threads`: who may change bytes now.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline]
    pub fn change(&self, threads: Threads, slot: u32, before: u8, after: u8) {
        let lane = 8 * (slot % 8);
        let flips = u64::from(before ^ after) << lane;
        self.words[slot as usize / 8].xor_by(threads, flips, Ordering::Relaxed);
    }

    /// Passes the slots whose byte in `array` differs from the copy to `found`, in ring order from the
    /// line of `first` on, and in that line from `first` on, until it breaks. The bytes are read
    /// relaxed: load a byte again with acquire before acting on it.
    ///
    /// The first line is compared alone, since most changes are there. The others are compared in
    /// groups before anything is done about them: whether a line has changed is hard to predict, and a
    /// misprediction for each would cost more than the comparison.
    ///
    /// # Panics
    /// When `first` is out of range, or `array` is shorter than all lines.
    #[inline]
    pub fn look<B>(
        &self,
        array: &VolatileSlice<'_>,
        first: u32,
        mut found: impl FnMut(u32) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let line = first / LINE_BYTES;
        slots_of(line, self.differing(line, array), first).try_for_each(&mut found)?;
        let others = [line + 1..self.lines(), 0..line];
        others.into_iter().try_for_each(|lines| self.scan_lines(array, lines, &mut found))
    }

    fn scan_lines<B>(
        &self,
        array: &VolatileSlice<'_>,
        lines: Range<u32>,
        found: &mut impl FnMut(u32) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for base in lines.clone().step_by(GROUP) {
            let mut news = [0; GROUP];
            let mut with_news = 0u64;
            for (i, line) in (base..lines.end).take(GROUP).enumerate() {
                news[i] = self.differing(line, array);
                with_news |= u64::from(news[i] != 0) << i;
            }
            while with_news != 0 {
                let i = with_news.trailing_zeros();
                with_news &= with_news - 1;
                let line = base + i;
                slots_of(line, news[i as usize], line * LINE_BYTES).try_for_each(&mut *found)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the slots of a line whose byte in `array` differs from the copy, as bits.
    #[inline]
    fn differing(&self, line: u32, array: &VolatileSlice<'_>) -> u64 {
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

    /// Returns the bits of a line that stand for a slot: the last line may be padded.
    #[inline]
    fn valid(&self, line: u32) -> u64 {
        let slots = self.slots - line * LINE_BYTES;
        match 1u64.checked_shl(slots) {
            Some(bit) => bit - 1,
            None => u64::MAX,
        }
    }
}

/// Returns the slots that the bits of a line stand for, in ring order, beginning with `first` if that
/// is in the line.
#[inline]
pub(crate) fn slots_of(line: u32, bits: u64, first: u32) -> impl Iterator<Item = u32> {
    let base = line * LINE_BYTES;
    let start = if first / LINE_BYTES == line { first % LINE_BYTES } else { 0 };
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
    fn only_real_slots_that_differ_are_found() {
        let region = Region::alloc(128, RegionOptions::default()).unwrap();
        region.whole().fill(9).unwrap();
        let mirror = ByteMirror::new(67);
        for slot in 0..67 {
            if slot != 5 && slot != 66 {
                mirror.change(Threads::Many, slot, 0, 9);
            }
        }
        assert_eq!(mirror.lines(), 2);
        assert_eq!(mirror.differing(0, &region.whole()), 1 << 5);
        assert_eq!(mirror.differing(1, &region.whole()), 1 << 2);
    }

    #[test]
    fn a_scan_finds_each_slot_once_from_the_first_on() {
        const SLOTS: u32 = 64 * 40 + 5;
        let region = Region::alloc(64 * 41, RegionOptions::default()).unwrap();
        let mirror = ByteMirror::new(SLOTS);
        let news = [0, 63, 64, 1000, 1087, 1088, 2000, SLOTS - 1];
        for slot in news {
            region.whole().atomic_u8(slot as usize).unwrap().store(4, Ordering::Relaxed);
        }
        let scan = |first| {
            let mut seen = Vec::new();
            let all = mirror.look(&region.whole(), first, |slot| {
                seen.push(slot);
                ControlFlow::<()>::Continue(())
            });
            assert!(all.is_continue());
            seen
        };
        assert_eq!(scan(0), news);
        // Line 15 from slot 1001 on, then its slot 1000, then the other lines.
        assert_eq!(scan(1001), [1000, 1087, 1088, 2000, SLOTS - 1, 0, 63, 64]);
        assert_eq!(scan(SLOTS - 1)[..2], [SLOTS - 1, 0]);
        let third = mirror.look(&region.whole(), 64, |slot| match slot {
            1087 => ControlFlow::Break(slot),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(third, ControlFlow::Break(1087));
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
