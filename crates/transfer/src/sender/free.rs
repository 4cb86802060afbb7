//! The slots that are known to be free, and how they are learnt.
use super::quota::Streams;
use crate::{
    layout::{LINE_BYTES, RingLayout},
    mirror::{ByteMirror, slots_of},
    slot::{FreeNews, SenderSlots},
    status::released_byte,
};
use catchment_verbs::mem::VolatileSlice;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A scan of a large ring stops once it has found this many.
const ENOUGH: u32 = LINE_BYTES;

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
    /// Free slots in the order in which they were released: about the order of the ring.
    known: ArrayQueue<u32>,
    /// What `free[]` says about the releases that were noted.
    noted: ByteMirror,
    /// Where the next release is expected.
    cursor: AtomicU32,
}

impl Slots {
    /// A fresh ring: all slots are free.
    pub(super) fn new(layout: &RingLayout) -> Slots {
        let blocks = layout.blocks();
        let known = ArrayQueue::new(blocks as usize);
        for slot in 0..blocks {
            // The queue has room for all slots.
            let _ = known.push(slot);
        }
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
        self.known.len() as u32
    }

    #[inline]
    pub(super) fn take(&self) -> Option<u32> {
        self.known.pop()
    }

    /// Gives a slot back that was taken. Each slot is in the queue at most once, so it has room.
    #[inline]
    pub(super) fn put_back(&self, slot: u32) {
        let _ = self.known.push(slot);
    }

    /// Asks the processor for the part of `free[]` where the next release is expected.
    #[inline]
    pub(super) fn prefetch(&self, free: &VolatileSlice<'_>) {
        free.prefetch(self.cursor() as usize);
    }

    /// Notes the releases that `free` shows. Any thread may do it, and `free` may be old.
    /// Says how many there were.
    pub(super) fn scan(&self, free: &VolatileSlice<'_>, streams: &Streams) -> u32 {
        let first = self.cursor();
        let lines = self.noted.lines();
        let mut found = 0;
        for line in (0..lines).map(|i| (first / LINE_BYTES + i) % lines) {
            let bits = self.noted.differing(line, free);
            for slot in slots_of(line, bits, first) {
                found += u32::from(self.note(slot, free, streams));
            }
            if found >= ENOUGH {
                break;
            }
        }
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
