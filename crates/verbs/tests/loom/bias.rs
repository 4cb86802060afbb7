//! A thread that is alone: a read-modify-write by load and store loses nothing when others come.
//!
//! The barrier of another thread is a fence on both sides here, which is what membarrier(2) promises; the
//! checker knows no barrier by which one thread makes all others execute a fence.
use crate::{fenced, unfenced};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::cell::Cell;

loom::thread_local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}

/// What the shipped code asks of its thread.
pub(crate) fn thread_number() -> u64 {
    NUMBER.with(Cell::get)
}

macro_rules! lost_count_model {
    ($build:ident, $threads:expr, $rounds:expr, $preemptions:expr) => {{
        use $build::section::{Bias, Threads};
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some($preemptions);
        builder.check(|| {
            let (bias, count) = (Arc::new(Bias::new()), Arc::new(AtomicU64::new(0)));
            let threads: Vec<_> = (1..=$threads)
                .map(|number| {
                    let (bias, count) = (Arc::clone(&bias), Arc::clone(&count));
                    thread::spawn(move || {
                        NUMBER.with(|this| this.set(number));
                        for _ in 0..$rounds {
                            let section = bias.enter();
                            match section.threads() {
                                Threads::One => {
                                    let before = count.load(Ordering::Relaxed);
                                    count.store(before + 1, Ordering::Relaxed);
                                }
                                Threads::Many => {
                                    count.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(count.load(Ordering::Relaxed), $rounds * $threads, "a count is lost");
        });
    }};
}

#[test]
fn two_threads_are_never_alone_at_once() {
    lost_count_model!(fenced, 2, 2, 3);
}

#[test]
fn nor_are_three() {
    lost_count_model!(fenced, 3, 1, 1);
}

#[test]
#[should_panic(expected = "a count is lost")]
fn without_the_barrier_two_threads_are_alone_at_once() {
    lost_count_model!(unfenced, 2, 2, 3);
}

/// The owner enters again inside of a section while another thread waits for it to leave.
#[test]
fn a_revoked_owner_does_not_wait_for_itself() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let bias = Arc::new(fenced::section::Bias::new());
        let theirs = Arc::clone(&bias);
        NUMBER.with(|this| this.set(1));
        let outer = bias.enter();
        let other = thread::spawn(move || {
            NUMBER.with(|this| this.set(2));
            drop(theirs.enter());
        });
        drop(bias.enter());
        drop(outer);
        other.join().unwrap();
    });
}
