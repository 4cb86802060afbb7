//! Every interleaving of the two protocols in shared memory, under the C11 memory model.
//!
//! Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p catchment-provider-shm --release --test loom`.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_provider_shm::{
    doorbell::{self, Flags},
    ring::{self, Count},
};
use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
    thread,
};

struct Word(AtomicU64);

impl Count for Word {
    fn publish(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn observe(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Cells that loom watches for races, as the bytes of the ring.
struct Shared {
    head: Word,
    tail: Word,
    cells: [UnsafeCell<u64>; CELLS],
}

const CELLS: usize = 2;
const MESSAGES: u64 = 3;

#[test]
fn what_is_published_is_complete_and_what_is_taken_is_free() {
    loom::model(|| {
        let shared = Arc::new(Shared {
            head: Word(AtomicU64::new(0)),
            tail: Word(AtomicU64::new(0)),
            cells: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let ours = shared.clone();
        let producer = thread::spawn(move || {
            for n in 0..MESSAGES {
                while ring::free_bytes(&ours.head, n, CELLS as u64) == Ok(0) {
                    thread::yield_now();
                }
                // SAFETY: loom checks that nobody else uses the cell now.
                ours.cells[n as usize % CELLS].with_mut(|cell| unsafe { *cell = n + 100 });
                ours.tail.publish(n + 1);
            }
        });
        for n in 0..MESSAGES {
            while ring::ready_bytes(&shared.tail, n, CELLS as u64) == Ok(0) {
                thread::yield_now();
            }
            // SAFETY: as above.
            let seen = shared.cells[n as usize % CELLS].with(|cell| unsafe { *cell });
            assert_eq!(seen, n + 100);
            shared.head.publish(n + 1);
        }
        producer.join().unwrap();
    });
}

struct Fenced(AtomicU32);
struct Unfenced(AtomicU32);

macro_rules! flags {
    ($name:ident, $fence:expr) => {
        impl Flags for $name {
            fn set(&self, bits: u32) {
                self.0.fetch_or(bits, Ordering::Relaxed);
            }

            fn clear(&self, bits: u32) {
                self.0.fetch_and(!bits, Ordering::Relaxed);
            }

            fn peek(&self) -> u32 {
                self.0.load(Ordering::Relaxed)
            }

            fn take(&self) -> u32 {
                self.0.swap(0, Ordering::AcqRel)
            }

            fn fence() {
                $fence
            }
        }
    };
}

flags!(Fenced, fence(Ordering::SeqCst));
flags!(Unfenced, ());

/// One writer, one sleeper: who sleeps without the data must have been rung.
fn nobody_sleeps_for_ever<F: Flags + Send + Sync + 'static>(make: fn() -> F) {
    loom::model(move || {
        let data = Arc::new(AtomicU32::new(0));
        let flags = Arc::new(make());
        let (theirs, their_flags) = (data.clone(), flags.clone());
        let writer = thread::spawn(move || {
            theirs.store(1, Ordering::Relaxed);
            doorbell::to_ring(&*their_flags) != 0
        });
        doorbell::arm(&*flags, 1);
        let sleeps = data.load(Ordering::Relaxed) == 0;
        let rung = writer.join().unwrap();
        assert!(!sleeps || rung, "asleep for ever");
    });
}

#[test]
fn an_armed_sleeper_is_rung() {
    nobody_sleeps_for_ever(|| Fenced(AtomicU32::new(0)));
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn without_the_fences_it_would_sleep_for_ever() {
    nobody_sleeps_for_ever(|| Unfenced(AtomicU32::new(0)));
}

#[test]
fn of_two_sleepers_each_is_rung() {
    loom::model(|| {
        let data = Arc::new(AtomicU32::new(0));
        let flags = Arc::new(Fenced(AtomicU32::new(0)));
        let sleepers: Vec<_> = [1, 2]
            .into_iter()
            .map(|bit| {
                let (data, flags) = (data.clone(), flags.clone());
                thread::spawn(move || {
                    doorbell::arm(&*flags, bit);
                    (bit, data.load(Ordering::Relaxed) == 0)
                })
            })
            .collect();
        data.store(1, Ordering::Relaxed);
        let rung = doorbell::to_ring(&*flags);
        for sleeper in sleepers {
            let (bit, sleeps) = sleeper.join().unwrap();
            assert!(!sleeps || rung & bit != 0, "sleeper {bit} sleeps for ever");
        }
    });
}
