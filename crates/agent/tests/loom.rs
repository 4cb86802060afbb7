//! Every interleaving of the ring of entries, under the C11 memory model: two threads of an application
//! and the agent; and of a slot that is written while it is read. How sleepers are woken is checked in `verbs/tests/loom`.
//!
//! Ring and slot are the shipped ones, over words of the model checker; it needs no `--cfg loom`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_agent::ring::{self, Claims, Count};
use catchment_agent::slot::{
    MOST_BYTES, SLOT_BYTES, Seen, SlotMemory, SlotName, SlotReader, encode,
};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

struct Word(AtomicU64);

impl Count for Word {
    fn publish(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn observe(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Claims for Word {
    fn current(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn advance(&self, seen: u64, by: u64) -> bool {
        self.0.compare_exchange(seen, seen + by, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Cells that loom watches for races, as the bytes of the slots.
struct Shared {
    claims: Word,
    seen: Word,
    taken: Word,
    turns: [Word; SLOTS],
    cells: [UnsafeCell<u64>; SLOTS],
}

const SLOTS: usize = 2;

fn word() -> Word {
    Word(AtomicU64::new(0))
}

impl Shared {
    fn new() -> Self {
        let cells = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Self { claims: word(), seen: word(), taken: word(), turns: [word(), word()], cells }
    }

    /// Puts values as a batch: published from the last to the first.
    fn put(&self, values: &[u64]) {
        let mut left = values;
        while !left.is_empty() {
            let (claims, seen, taken) = (&self.claims, &self.seen, &self.taken);
            let most = left.len() as u64;
            let range = ring::claim(claims, seen, taken, SLOTS as u64, most).unwrap();
            if range.is_empty() {
                thread::yield_now();
            }
            let (now, rest) = left.split_at((range.end - range.start) as usize);
            left = rest;
            for (n, value) in range.zip(now).collect::<Vec<_>>().into_iter().rev() {
                let slot = n as usize % SLOTS;
                // SAFETY: loom checks that no other thread uses the cell now.
                self.cells[slot].with_mut(|cell| unsafe { *cell = *value });
                ring::publish(&self.turns[slot], n);
            }
        }
    }

    fn take(&self, n: u64) -> u64 {
        let slot = n as usize % SLOTS;
        while !ring::is_published(&self.turns[slot], n) {
            thread::yield_now();
        }
        // SAFETY: as above.
        let value = self.cells[slot].with(|cell| unsafe { *cell });
        self.taken.publish(n + 1);
        value
    }
}

/// S5.3: two threads put an entry each into a ring of two, while the agent takes.
#[test]
fn what_two_threads_put_is_taken_once_and_whole() {
    loom::model(|| {
        let shared = Arc::new(Shared::new());
        let other = shared.clone();
        let second = thread::spawn(move || other.put(&[10]));
        shared.put(&[20]);
        let mut seen: Vec<u64> = (0..2).map(|n| shared.take(n)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [10, 20]);
        second.join().unwrap();
    });
}

/// S5.3: a thread fills each slot and one of them again: only once the agent has taken what was there.
#[test]
fn a_slot_is_filled_again_once_it_is_free_and_order_is_kept() {
    loom::model(|| {
        let shared = Arc::new(Shared::new());
        let ours = shared.clone();
        let producer = thread::spawn(move || ours.put(&[20, 21, 22]));
        for n in 0..3 {
            assert_eq!(shared.take(n), 20 + n);
        }
        producer.join().unwrap();
    });
}

/// The last words of a slot: a message of one word, generation, bytes, commit word.
struct Slot([AtomicU64; 4]);

const FIRST: usize = SLOT_BYTES / 8 - 4;

impl SlotMemory for Slot {
    fn load(&self, word: usize) -> u64 {
        self.0[word - FIRST].load(Ordering::Relaxed)
    }

    fn load_commit(&self) -> u64 {
        self.0[3].load(Ordering::Acquire)
    }
}

/// Places a WRITE as devices do: the last word last, the others in any order.
fn place(slot: &Slot, generation: u64, message: &[u8; 8]) {
    let mut bytes = [0; SLOT_BYTES];
    encode(SlotName::new(7, 9, 0), generation, message, &mut bytes).unwrap();
    let words = bytes[8 * FIRST..].chunks_exact(8);
    let orders = [Ordering::Relaxed, Ordering::Relaxed, Ordering::Relaxed, Ordering::Release];
    for ((to, word), order) in slot.0.iter().zip(words).zip(orders) {
        to.store(u64::from_le_bytes(word.try_into().unwrap()), order);
    }
}

/// A slot is written twice while it is read: what is taken is one of the two, whole, and the first not after the
/// second, which is there when all is still.
#[test]
fn a_slot_that_is_written_over_is_never_taken_torn() {
    loom::model(|| {
        let slot = Arc::new(Slot([0; 4].map(AtomicU64::new)));
        let written = slot.clone();
        let writer = thread::spawn(move || {
            place(&written, 1, &[1; 8]);
            place(&written, 2, &[2; 8]);
        });
        let mut reader = SlotReader::new(SlotName::new(7, 9, 0));
        let mut taken = Vec::new();
        let mut look = || {
            let mut out = [0; MOST_BYTES];
            if reader.take(&*slot, &mut out) == Seen::Message(8) {
                assert!(out[..8].iter().all(|byte| *byte == out[0]), "{:?}", &out[..8]);
                taken.push(out[0]);
            }
        };
        look();
        look();
        writer.join().unwrap();
        look();
        assert!(taken == [2] || taken == [1, 2], "{taken:?}");
    });
}
