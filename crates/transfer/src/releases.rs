//! Releasing slots: several together, in the line that the sender polls.
//!
//! A sender that is short of slots polls a line of `free[]`. Storing a byte there for each block would
//! move the line from one processor to the other and back each time. So the bytes of a line are
//! stored when a quarter of the ring is due, when a slot of another line is released, or at once
//! while the receiver is idle: then the sender may be waiting for just these.
//!
//! They are stored in ring order, beginning behind the slot that was taken last: whatever part of
//! them the sender sees, it uses the slots in the order in which the receiver polls.
//!
//! A thread that releases a block notes it first and then checks whether the receiver is idle; the
//! receiver first says that it is idle and then checks what was noted. So one of the two sees the
//! other, and nothing stays noted while the receiver waits. A thread that is alone
//! ([`catchment_verbs::bias`]) sees itself.
use crate::layout::LINE_BYTES;
use crate::mirror::slots_of;
use crate::slot::{ReceiverSlots, SlotMemory, release};
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Ordering, Threads, Update as _, between_seq_cst,
};

/// Most slots of a line that are noted before they are published.
const MOST: u32 = 16;

/// The slots that were released but not yet published to the sender.
#[derive(Debug)]
pub struct Releases {
    /// A bit for each slot; a word is a line of `free[]`.
    due: Box<[AtomicU64]>,
    /// Number of bits of a word that are published together.
    every: u32,
    /// The line of the slot released last. What other lines owed was published, or is being published
    /// by the thread that changed this.
    line: AtomicU32,
    /// The receiver's last poll found nothing.
    idle: AtomicBool,
}

impl Releases {
    /// Creates the releases of a fresh ring of so many slots. `at_once` publishes each immediately, for
    /// blocks that the sender reuses while they are in the cache.
    pub fn new(blocks: u32, at_once: bool) -> Self {
        let words = blocks.div_ceil(LINE_BYTES);
        Self {
            due: (0..words).map(|_| AtomicU64::new(0)).collect(),
            every: if at_once { 1 } else { blocks.div_ceil(4).min(MOST) },
            line: AtomicU32::new(0),
            idle: AtomicBool::new(false),
        }
    }

    /// Releases the block of this generation; its owner calls this once. `next` is the slot that the
    /// receiver polls next; `threads`: who may release and poll now. Returns whether anything was
    /// published: ring then.
    #[inline]
    pub fn give_back(
        &self,
        threads: Threads,
        memory: &impl SlotMemory,
        slots: &ReceiverSlots,
        (slot, generation): (u32, u64),
        next: u32,
    ) -> bool {
        if !slots.end(slot, generation) {
            return false;
        }
        if self.every == 1 {
            release(memory, slot, generation);
            return true;
        }
        let line = slot / LINE_BYTES;
        // The bit is clear, so adding it sets it.
        let bit = 1 << (slot % LINE_BYTES);
        let before = self.due[line as usize].add_by(threads, bit, Ordering::SeqCst);
        between_seq_cst();
        let mut published = false;
        if self.line.load(Ordering::SeqCst) != line {
            let left = self.line.swap_by(threads, line, Ordering::SeqCst);
            between_seq_cst();
            published = self.publish(threads, memory, slots, left, next);
        }
        let full = before.count_ones() + 1 >= self.every;
        if full || self.idle.load(Ordering::SeqCst) {
            published |= self.publish(threads, memory, slots, line, next);
        }
        published
    }

    /// Notes that polling found a block.
    #[inline]
    pub fn note_busy(&self) {
        if self.idle.load(Ordering::Relaxed) {
            self.idle.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that polling found nothing: publishes what is due now, and later releases at once.
    /// Returns whether anything was published: ring then.
    #[inline]
    pub fn note_idle(
        &self,
        threads: Threads,
        memory: &impl SlotMemory,
        slots: &ReceiverSlots,
        next: u32,
    ) -> bool {
        if self.idle.load(Ordering::Relaxed) {
            return false;
        }
        match threads {
            Threads::One => self.idle.store(true, Ordering::Release),
            Threads::Many => self.idle.store(true, Ordering::SeqCst),
        }
        between_seq_cst();
        self.publish(threads, memory, slots, self.line.load(Ordering::SeqCst), next)
    }

    /// Publishes what is due in a line. The thread that takes a bit stores its byte. No newer byte for
    /// that slot exists meanwhile: the sender does not reuse it before it has seen this one.
    fn publish(
        &self,
        threads: Threads,
        memory: &impl SlotMemory,
        slots: &ReceiverSlots,
        line: u32,
        next: u32,
    ) -> bool {
        let due = &self.due[line as usize];
        if due.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let bits = due.swap_by(threads, 0, Ordering::SeqCst);
        for slot in slots_of(line, bits, next) {
            release(memory, slot, slots.generation(slot));
        }
        bits != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::commit::{HEADER_WORDS, commit_word};
    use std::cell::RefCell;

    const EPOCH: u64 = 7;

    /// Every slot has a block of generation 1; notes which slots are published, in their order.
    struct Published(RefCell<Vec<u32>>);

    impl SlotMemory for Published {
        fn load_full(&self, _: u32) -> u8 {
            0
        }
        fn store_full(&self, _: u32, _: u8) {}
        fn load_free(&self, _: u32) -> u8 {
            0
        }
        fn store_free(&self, slot: u32, _: u8) {
            self.0.borrow_mut().push(slot);
        }
        fn load_commit(&self, slot: u32) -> u64 {
            commit_word(EPOCH, slot, 1, &[0; HEADER_WORDS])
        }
        fn store_commit(&self, _: u32, _: u64) {}
        fn read_header(&self, _: u32) -> [u64; HEADER_WORDS] {
            [0; HEADER_WORDS]
        }
        fn write_header(&self, _: u32, _: &[u64; HEADER_WORDS]) {}
    }

    /// Takes and releases the blocks of these slots one after the other; returns those published to
    /// the sender, in order.
    fn published_by(threads: Threads, blocks: u32, given_back: &[u32]) -> Vec<u32> {
        let (slots, releases) = (ReceiverSlots::new(blocks), Releases::new(blocks, false));
        let memory = Published(RefCell::default());
        for &slot in given_back {
            slots.take(threads, &memory, EPOCH, slot, |_| true);
            releases.give_back(threads, &memory, &slots, (slot, 1), (slot + 1) % blocks);
        }
        memory.0.into_inner()
    }

    /// The same by a thread that is alone, which must be no different.
    fn published(blocks: u32, given_back: &[u32]) -> Vec<u32> {
        let alone = published_by(Threads::One, blocks, given_back);
        assert_eq!(alone, published_by(Threads::Many, blocks, given_back));
        alone
    }

    #[test]
    fn slots_are_published_in_ring_order() {
        assert_eq!(published(16, &[13, 14, 15, 0]), [13, 14, 15, 0]);
        assert_eq!(published(12, &[5, 3, 4]), [5, 3, 4]);
    }

    #[test]
    fn nothing_stays_behind_in_a_line() {
        assert_eq!(published(128, &[61, 62, 63]), []);
        assert_eq!(published(128, &[61, 62, 63, 64]), [61, 62, 63]);
        assert_eq!(published(100, &[97, 98, 99, 0, 1]), [97, 98, 99]);
    }
}
