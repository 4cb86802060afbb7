//! Every interleaving of the ring in shared memory, under the C11 memory model. How its sleepers
//! are woken is checked in `verbs/tests/loom`.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test -p catchment-provider-shm --release --test loom`.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_provider_shm::ring::{self, Count};
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
                // SAFETY: loom checks that no other thread uses the cell now.
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
