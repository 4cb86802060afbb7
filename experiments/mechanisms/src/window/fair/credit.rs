//! The sender's view of a window.
use crate::PeerFault;
use catchment_verbs::mem::VolatileSlice;
use std::sync::atomic::Ordering;

const INSIDE: &str = "a word inside of the window's credit";

/// Which slots of a window the sender may fill.
#[derive(Debug)]
pub(super) enum Credit {
    Count(Count),
    Bits(Bits),
}

/// Slots are used in turn, and come back in turn.
#[derive(Debug)]
pub(super) struct Count {
    blocks: u64,
    sent: u64,
    /// Blocks known to have come back.
    back: u64,
}

/// Slots come back in any order.
#[derive(Debug)]
pub(super) struct Bits {
    blocks: u32,
    /// A bit for every slot that may be filled.
    free: Box<[u64]>,
    /// The receiver's bits when they were read last: one flips each time its slot comes back.
    seen: Box<[u64]>,
    /// Where the search for the next free slot begins.
    next: u32,
}

impl Credit {
    pub(super) fn new(blocks: u32, selective: bool) -> Self {
        if !selective {
            return Self::Count(Count { blocks: blocks.into(), sent: 0, back: 0 });
        }
        let words = blocks.div_ceil(u64::BITS);
        Self::Bits(Bits {
            blocks,
            free: (0..words).map(|word| valid_bits(blocks, word)).collect(),
            seen: vec![0; words as usize].into(),
            next: 0,
        })
    }

    /// Returns the slot for the next block, if one is known to be free.
    #[inline]
    pub(super) fn next_slot(&self) -> Option<u32> {
        match self {
            Self::Count(count) if count.sent - count.back < count.blocks => {
                Some((count.sent % count.blocks) as u32)
            }
            Self::Count(_) => None,
            Self::Bits(bits) => bits.first_free(),
        }
    }

    /// Notes that a block was sent in this slot, which [`Credit::next_slot`] returned.
    #[inline]
    pub(super) fn use_slot(&mut self, slot: u32) {
        match self {
            Self::Count(count) => count.sent += 1,
            Self::Bits(bits) => {
                bits.free[(slot / u64::BITS) as usize] &= !(1 << (slot % u64::BITS));
                bits.next = if slot + 1 == bits.blocks { 0 } else { slot + 1 };
            }
        }
    }

    /// Returns the number of blocks sent so far: the tail of the next one, less one.
    #[inline]
    pub(super) fn sent(&self) -> u64 {
        match self {
            Self::Count(count) => count.sent,
            Self::Bits(_) => 0,
        }
    }

    /// Reads what the receiver wrote.
    #[inline]
    pub(super) fn read(&mut self, written: &VolatileSlice<'_>) -> Result<(), PeerFault> {
        match self {
            Self::Count(count) => count.update(load(written, 0)),
            Self::Bits(bits) => bits.read(written),
        }
    }
}

#[inline]
fn load(written: &VolatileSlice<'_>, word: usize) -> u64 {
    u64::from_le(written.load_u64(8 * word, Ordering::Acquire).expect(INSIDE))
}

/// Returns the bits of a word that stand for a slot.
fn valid_bits(blocks: u32, word: u32) -> u64 {
    match blocks - word * u64::BITS {
        left if left >= u64::BITS => u64::MAX,
        left => (1 << left) - 1,
    }
}

impl Count {
    #[inline]
    fn update(&mut self, back: u64) -> Result<(), PeerFault> {
        if back < self.back || back > self.sent {
            return Err(PeerFault::Credit { count: back, known: self.back, sent: self.sent });
        }
        self.back = back;
        Ok(())
    }
}

impl Bits {
    #[inline]
    fn first_free(&self) -> Option<u32> {
        let (word, bit) = ((self.next / u64::BITS) as usize, self.next % u64::BITS);
        let here = self.free[word] & (u64::MAX << bit);
        if here != 0 {
            return Some(word as u32 * u64::BITS + here.trailing_zeros());
        }
        let words = self.free.len();
        // The word of `next` comes once more at the end, for its bits before `next`.
        (1..=words)
            .map(|i| (word + i) % words)
            .find(|&word| self.free[word] != 0)
            .map(|word| word as u32 * u64::BITS + self.free[word].trailing_zeros())
    }

    #[inline]
    fn read(&mut self, written: &VolatileSlice<'_>) -> Result<(), PeerFault> {
        for word in 0..self.free.len() {
            let now = load(written, word);
            let news = now ^ self.seen[word];
            let wrong = news & (self.free[word] | !valid_bits(self.blocks, word as u32));
            if wrong != 0 {
                let slot = word as u32 * u64::BITS + wrong.trailing_zeros();
                return Err(PeerFault::Released(slot));
            }
            self.free[word] |= news;
            self.seen[word] = now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_verbs::mem::{Region, RegionOptions};
    use std::sync::Arc;

    fn memory() -> Arc<Region> {
        Region::alloc(64, RegionOptions::default()).unwrap()
    }

    fn write(region: &Region, word: usize, value: u64) {
        region.whole().write_at(8 * word, &value.to_le_bytes()).unwrap();
    }

    /// Uses all free slots, which must be these.
    fn use_slots(credit: &mut Credit, slots: impl IntoIterator<Item = u32>) {
        for slot in slots {
            assert_eq!(credit.next_slot(), Some(slot));
            credit.use_slot(slot);
        }
        assert_eq!(credit.next_slot(), None);
    }

    #[test]
    fn a_count_gives_slots_back_in_turn() {
        let region = memory();
        let mut credit = Credit::new(3, false);
        use_slots(&mut credit, 0..3);
        write(&region, 0, 2);
        credit.read(&region.whole()).unwrap();
        use_slots(&mut credit, 0..2);
    }

    #[test]
    fn a_count_out_of_range_is_the_peers_fault() {
        let region = memory();
        let mut credit = Credit::new(3, false);
        credit.use_slot(0);
        credit.use_slot(1);
        write(&region, 0, 2);
        credit.read(&region.whole()).unwrap();
        for wrong in [3, 1, u64::MAX] {
            write(&region, 0, wrong);
            let fault = credit.read(&region.whole()).unwrap_err();
            let (known, sent) = (2, 2);
            assert_eq!(fault, PeerFault::Credit { count: wrong, known, sent });
        }
    }

    #[test]
    fn bits_give_slots_back_in_any_order() {
        let region = memory();
        let mut credit = Credit::new(70, true);
        use_slots(&mut credit, 0..70);
        write(&region, 0, 1 << 5);
        write(&region, 1, 1 << 3);
        credit.read(&region.whole()).unwrap();
        use_slots(&mut credit, [5, 67]);
        // Released again: the bit flips back.
        write(&region, 0, 0);
        credit.read(&region.whole()).unwrap();
        assert_eq!(credit.next_slot(), Some(5));
    }

    #[test]
    fn bits_of_slots_that_are_free_or_do_not_exist_are_the_peers_fault() {
        for (word, bit, slot) in [(0, 1, 1), (1, 6, 70)] {
            let region = memory();
            let mut credit = Credit::new(70, true);
            credit.use_slot(0);
            write(&region, word, 1 << bit);
            assert_eq!(credit.read(&region.whole()).unwrap_err(), PeerFault::Released(slot));
        }
    }
}
