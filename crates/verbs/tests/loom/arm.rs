//! Armed flags: a sleeper that did not see the data has been rung.
use catchment_verbs::wait::arm::{self, Flags};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

struct Fenced(AtomicU32);
struct Unfenced(AtomicU32);
/// The sleeper makes the writer's fence (membarrier): the checker knows no barrier of another thread, so each side
/// makes its own.
struct FencedBySleeper(AtomicU32);
/// The writer relies on a sleeper that makes a fence for itself only.
struct NotPromised(AtomicU32);

macro_rules! flags {
    ($name:ident, $fence:expr, $sleeper:expr) => {
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

            fn sleeper_fence(&self) {
                $sleeper
            }
        }
    };
}

flags!(Fenced, fence(Ordering::SeqCst), Self::fence());
flags!(Unfenced, (), Self::fence());
flags!(FencedBySleeper, fence(Ordering::SeqCst), fence(Ordering::SeqCst));
flags!(NotPromised, (), fence(Ordering::SeqCst));

/// One writer, one sleeper: a sleeper without the data must have been rung.
fn nobody_sleeps_for_ever<F: Flags + Send + Sync + 'static>(make: fn() -> F) {
    loom::model(move || {
        let data = Arc::new(AtomicU32::new(0));
        let flags = Arc::new(make());
        let (theirs, their_flags) = (data.clone(), flags.clone());
        let writer = thread::spawn(move || {
            theirs.store(1, Ordering::Relaxed);
            arm::take_armed(&*their_flags) != 0
        });
        arm::arm(&*flags, 1);
        let sleeps = data.load(Ordering::Relaxed) == 0;
        let rung = writer.join().unwrap();
        assert!(!sleeps || rung, "asleep forever");
    });
}

#[test]
fn an_armed_sleeper_is_rung() {
    nobody_sleeps_for_ever(|| Fenced(AtomicU32::new(0)));
}

#[test]
#[should_panic(expected = "asleep forever")]
fn without_the_fences_it_would_sleep_for_ever() {
    nobody_sleeps_for_ever(|| Unfenced(AtomicU32::new(0)));
}

#[test]
fn a_sleeper_that_makes_the_fence_of_its_writer_is_rung() {
    nobody_sleeps_for_ever(|| FencedBySleeper(AtomicU32::new(0)));
}

/// Why a writer leaves its fence out only where the sleeper has promised to make it.
#[test]
#[should_panic(expected = "asleep forever")]
fn a_sleeper_that_did_not_promise_that_would_sleep_for_ever() {
    nobody_sleeps_for_ever(|| NotPromised(AtomicU32::new(0)));
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
                    arm::arm(&*flags, bit);
                    (bit, data.load(Ordering::Relaxed) == 0)
                })
            })
            .collect();
        data.store(1, Ordering::Relaxed);
        let rung = arm::take_armed(&*flags);
        for sleeper in sleepers {
            let (bit, sleeps) = sleeper.join().unwrap();
            assert!(!sleeps || rung & bit != 0, "sleeper {bit} sleeps forever");
        }
    });
}
