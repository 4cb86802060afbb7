//! Giving slots back: several with one store to the line that the sender looks at.
//!
//! A sender that is short of slots looks at a line of `free[]` again and again. Were a byte stored
//! there for each block, the line would go from one processor to the other and back with each. So
//! the bytes of a line are stored when a quarter of the ring is due, or at once while the receiver
//! has found nothing to do: then the sender may be waiting for just these.
//!
//! A thread that gives a block back notes it first and looks then whether the receiver is idle; the
//! receiver says first that it is idle and looks then at what was noted. So one of the two sees the
//! other, and nothing stays noted while the receiver waits.
use crate::{
    layout::LINE_BYTES,
    slot::{ReceiverSlots, SlotMemory, release},
    sync::{AtomicBool, AtomicU64, Ordering, between_seq_cst},
};

/// Most slots of a line that are noted before they are told.
const MOST: u32 = 16;

/// The slots that were given back and that the sender was not told of.
#[derive(Debug)]
pub struct Releases {
    /// A bit for each slot; a word is a line of `free[]`.
    due: Box<[AtomicU64]>,
    /// So many bits of a word are told together.
    every: u32,
    /// The receiver's last look found nothing.
    idle: AtomicBool,
}

impl Releases {
    /// For a fresh ring of so many slots: nothing was given back. `at_once` for blocks that the
    /// sender wants back soon, while they are in the cache.
    pub fn new(blocks: u32, at_once: bool) -> Releases {
        let words = blocks.div_ceil(LINE_BYTES);
        Releases {
            due: (0..words).map(|_| AtomicU64::new(0)).collect(),
            every: if at_once {
                1
            } else {
                blocks.div_ceil(4).min(MOST)
            },
            idle: AtomicBool::new(false),
        }
    }

    /// Gives back the block of this generation, once, by whoever took it. Says whether the sender was
    /// told of anything: ring then.
    #[inline]
    pub fn give_back(
        &self,
        memory: &impl SlotMemory,
        slots: &ReceiverSlots,
        slot: u32,
        generation: u64,
    ) -> bool {
        if !slots.end(slot, generation) {
            return false;
        }
        if self.every == 1 {
            release(memory, slot, generation);
            return true;
        }
        let line = slot / LINE_BYTES;
        // The bit is clear: to add it is to set it.
        let before = self.due[line as usize].fetch_add(1 << (slot % LINE_BYTES), Ordering::SeqCst);
        between_seq_cst();
        let full = before.count_ones() + 1 >= self.every;
        (full || self.idle.load(Ordering::SeqCst)) && self.tell(memory, slots, line)
    }

    /// A look found a block.
    #[inline]
    pub fn note_busy(&self) {
        if self.idle.load(Ordering::Relaxed) {
            self.idle.store(false, Ordering::Relaxed);
        }
    }

    /// A look found nothing: what is noted is told now, and what is given back from now on at once.
    /// Says whether the sender was told of anything: ring then.
    #[inline]
    pub fn note_idle(&self, memory: &impl SlotMemory, slots: &ReceiverSlots) -> bool {
        if self.idle.load(Ordering::Relaxed) {
            return false;
        }
        self.idle.store(true, Ordering::SeqCst);
        between_seq_cst();
        let mut told = false;
        for (line, due) in (0..).zip(&self.due) {
            told |= due.load(Ordering::SeqCst) != 0 && self.tell(memory, slots, line);
        }
        told
    }

    /// Whoever takes a bit stores its byte. Nobody else has a newer one for that slot meanwhile: the
    /// sender does not use it again before it has seen this one.
    fn tell(&self, memory: &impl SlotMemory, slots: &ReceiverSlots, line: u32) -> bool {
        let mut bits = self.due[line as usize].swap(0, Ordering::SeqCst);
        let any = bits != 0;
        while bits != 0 {
            let slot = line * LINE_BYTES + bits.trailing_zeros();
            bits &= bits - 1;
            release(memory, slot, slots.generation(slot));
        }
        any
    }
}
