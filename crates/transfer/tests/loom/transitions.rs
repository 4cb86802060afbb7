//! Which stores of status bytes and commit words the protocol makes (S1.6).
use super::*;

/// The ring as one of its two sides stores to it: every store is a transition that this side may make.
///
/// Loads that check are relaxed and order nothing: who may store has seen the last state.
pub(super) enum Watched<'a> {
    Sender(&'a Ring),
    Receiver(&'a Ring),
}

impl Watched<'_> {
    fn ring(&self) -> &Ring {
        match self {
            Self::Sender(ring) | Self::Receiver(ring) => ring,
        }
    }

    fn free(&self, slot: u32) -> u8 {
        self.ring().slot(slot).free.load(Ordering::Relaxed)
    }

    fn commit(&self, slot: u32) -> u64 {
        self.ring().slot(slot).commit.load(Ordering::Relaxed)
    }

    /// The commit word of this generation with this header.
    fn word(slot: u32, generation: u64, header: &[u64; 7]) -> u64 {
        if generation == 0 { 0 } else { commit_word(EPOCH, slot, generation, header) }
    }
}

/// Most blocks through one slot in a model.
const GENERATIONS: u64 = 3;

impl SlotMemory for Watched<'_> {
    fn load_full(&self, slot: u32) -> u8 {
        self.ring().load_full(slot)
    }
    fn store_full(&self, slot: u32, value: u8) {
        assert!(matches!(self, Self::Sender(_)), "illegal: a hint of the receiver");
        self.ring().store_full(slot, value);
    }
    fn load_free(&self, slot: u32) -> u8 {
        self.ring().load_free(slot)
    }

    /// 1 to 0, 1 to 2 and 2 to 0, by the receiver, of the generation that is there.
    fn store_free(&self, slot: u32, value: u8) {
        assert!(matches!(self, Self::Receiver(_)), "illegal: a release of the sender");
        let legal = (1..=GENERATIONS).any(|generation| {
            let before = self.free(slot);
            let full = before == released_byte(generation - 1);
            let is_there =
                self.commit(slot) == Self::word(slot, generation, &self.read_header(slot));
            let kept = before == held_byte(generation);
            let release = value == released_byte(generation) && (full || kept);
            is_there && (release || (value == held_byte(generation) && full))
        });
        assert!(legal, "illegal: {:#x} to {value:#x}", self.free(slot));
        self.ring().store_free(slot, value);
    }
    fn load_commit(&self, slot: u32) -> u64 {
        self.ring().load_commit(slot)
    }

    /// 0 to 1, by the sender: the block before was released.
    fn store_commit(&self, slot: u32, word: u64) {
        assert!(matches!(self, Self::Sender(_)), "illegal: a block of the receiver");
        let header = self.read_header(slot);
        let legal = (1..=GENERATIONS).any(|generation| {
            word == Self::word(slot, generation, &header)
                && self.free(slot) == released_byte(generation - 1)
        });
        assert!(legal, "illegal: a block over free byte {:#x}", self.free(slot));
        self.ring().store_commit(slot, word);
    }
    fn read_header(&self, slot: u32) -> [u64; 7] {
        self.ring().read_header(slot)
    }
    fn write_header(&self, slot: u32, words: &[u64; 7]) {
        self.ring().write_header(slot, words);
    }
}
