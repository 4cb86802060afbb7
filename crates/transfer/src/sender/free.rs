//! The slots that are known to be free, and how they are learnt.
use super::quota::Streams;
use crate::{
    layout::{LINE_BYTES, RingLayout},
    mirror::ByteMirror,
    slot::{FreeNews, SenderSlots},
    status::released_byte,
};
use catchment_verbs::mem::VolatileSlice;
use crossbeam_queue::ArrayQueue;
use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// A scan of a large ring stops once it has found this many.
const ENOUGH: u32 = LINE_BYTES;

/// Blocks from this size on take the free slot of the lowest number, so that few slots are used
/// while few are needed: those are still in the cache. Smaller blocks go round the ring, where the
/// receiver expects them.
const FEW_SLOTS_FROM_BYTES: u32 = 64 << 10;

/// What the sender keeps for each slot beside its generation.
#[derive(Debug, Default)]
pub(super) struct SlotInfo {
    /// Stream of the outstanding block.
    pub(super) stream: AtomicU32,
    /// Bytes from its payload to its trailer.
    pub(super) room_bytes: AtomicU32,
    /// Its place in the order of commits.
    pub(super) order: AtomicU64,
}

/// All that is known of the slots. Lock-free.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) generations: SenderSlots,
    pub(super) info: Box<[SlotInfo]>,
    known: Known,
    /// What `free[]` says about the releases that were noted.
    noted: ByteMirror,
    /// Where the next release is expected.
    cursor: AtomicU32,
}

impl Slots {
    /// A fresh ring: all slots are free.
    pub(super) fn new(layout: &RingLayout) -> Slots {
        let blocks = layout.blocks();
        let known = Known::new(layout);
        (0..blocks).for_each(|slot| known.put_back(slot));
        Slots {
            generations: SenderSlots::new(blocks),
            info: (0..blocks).map(|_| SlotInfo::default()).collect(),
            known,
            noted: ByteMirror::new(blocks),
            cursor: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn known(&self) -> u32 {
        self.known.len()
    }

    /// Whether the slot that comes back first should be used first.
    #[inline]
    pub(super) fn uses_few(&self) -> bool {
        matches!(self.known, Known::Lowest(_))
    }

    #[inline]
    pub(super) fn take(&self) -> Option<u32> {
        self.known.take()
    }

    /// Gives a slot back that was taken. Each slot is in the queue at most once, so it has room.
    #[inline]
    pub(super) fn put_back(&self, slot: u32) {
        self.known.put_back(slot);
    }

    /// Asks the processor for the part of `free[]` where the next release is expected.
    #[inline]
    pub(super) fn prefetch(&self, free: &VolatileSlice<'_>) {
        free.prefetch(self.cursor() as usize);
    }

    /// Notes the releases that `free` shows. Any thread may do it, and `free` may be old.
    /// Says how many there were.
    pub(super) fn scan(&self, free: &VolatileSlice<'_>, streams: &Streams) -> u32 {
        let mut found = 0;
        let _ = self.noted.look(free, self.cursor(), |slot| {
            found += u32::from(self.note(slot, free, streams));
            if found < ENOUGH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        found
    }

    /// The slot where the next release is expected.
    #[inline]
    pub(super) fn cursor(&self) -> u32 {
        self.cursor.load(Ordering::Relaxed)
    }

    fn note(&self, slot: u32, free: &VolatileSlice<'_>, streams: &Streams) -> bool {
        let byte = free.load_u8(slot as usize, Ordering::Acquire);
        let byte = byte.expect("a slot inside of the status array");
        if self.generations.note_free(slot, byte) != FreeNews::Released {
            return false;
        }
        // From here to `put_back` the slot belongs to this thread.
        let stream = self.info[slot as usize].stream.load(Ordering::Relaxed);
        let generation = self.generations.next_generation(slot) - 1;
        let before = released_byte(generation - 1);
        self.noted.change(slot, before, released_byte(generation));
        let after = (slot + 1) % self.info.len() as u32;
        self.cursor.store(after, Ordering::Relaxed);
        streams.leave(stream);
        self.put_back(slot);
        true
    }
}

/// The free slots, in the order in which they are to be used.
#[allow(
    clippy::large_enum_variant,
    reason = "one a sender; a box would cost every claim a load"
)]
#[derive(Debug)]
enum Known {
    /// In the order in which they were released: about the order of the ring.
    Round(ArrayQueue<u32>),
    /// The lowest first: one bit a slot.
    Lowest(Box<[AtomicU64]>),
}

impl Known {
    fn new(layout: &RingLayout) -> Known {
        let blocks = layout.blocks() as usize;
        if layout.block_bytes() < FEW_SLOTS_FROM_BYTES {
            return Known::Round(ArrayQueue::new(blocks));
        }
        let words = blocks.div_ceil(u64::BITS as usize);
        Known::Lowest((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn len(&self) -> u32 {
        match self {
            Known::Round(queue) => queue.len() as u32,
            Known::Lowest(words) => words
                .iter()
                .map(|word| word.load(Ordering::Relaxed).count_ones())
                .sum(),
        }
    }

    fn put_back(&self, slot: u32) {
        match self {
            // The queue has room for all slots.
            Known::Round(queue) => drop(queue.push(slot)),
            Known::Lowest(words) => {
                let (word, bit) = (slot / u64::BITS, slot % u64::BITS);
                words[word as usize].fetch_or(1 << bit, Ordering::Release);
            }
        }
    }

    fn take(&self) -> Option<u32> {
        match self {
            Known::Round(queue) => queue.pop(),
            Known::Lowest(words) => (0..)
                .zip(words)
                .find_map(|(i, word)| Some(i * u64::BITS + take_lowest(word)?)),
        }
    }
}

/// Clears the lowest bit and says which it was.
fn take_lowest(word: &AtomicU64) -> Option<u32> {
    let without_lowest = |bits: u64| (bits != 0).then(|| bits & (bits - 1));
    let before = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, without_lowest);
    before.ok().map(u64::trailing_zeros)
}
