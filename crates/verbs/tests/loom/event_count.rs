//! Event counts: no change is missed between checking and sleeping. A wake-up that is lost is a
//! deadlock, which the checker reports.
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

macro_rules! model {
    ($name:ident, $code:ident) => {
        /// One thread stores and notifies; this one and `others` more sleep until they see it.
        fn $name(others: usize, one: bool) {
            type Shared = Arc<(crate::$code::event_count::EventCount, AtomicU32)>;
            fn sleep_until_stored(shared: &Shared) {
                loop {
                    let seen = shared.0.current();
                    if shared.1.load(Ordering::Relaxed) == 1 {
                        return;
                    }
                    shared.0.wait(seen, None);
                }
            }
            let mut builder = loom::model::Builder::new();
            // So that the search ends.
            builder.preemption_bound = (others > 0).then_some(2);
            builder.check(move || {
                let shared: Shared = Arc::default();
                let theirs = shared.clone();
                let mut threads = vec![thread::spawn(move || {
                    theirs.1.store(1, Ordering::Relaxed);
                    if one {
                        theirs.0.notify_one();
                    } else {
                        theirs.0.notify();
                    }
                })];
                threads.extend((0..others).map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || sleep_until_stored(&shared))
                }));
                sleep_until_stored(&shared);
                threads.into_iter().for_each(|t| t.join().unwrap());
            });
        }
    };
}

model!(with_fences, fenced);
model!(without_fences, unfenced);

#[test]
fn a_sleeper_sees_the_change_or_is_woken() {
    with_fences(0, false);
}

#[test]
fn a_single_sleeper_is_woken_by_a_notification_for_one() {
    with_fences(0, true);
}

#[test]
fn two_sleepers_see_the_change_or_are_woken() {
    with_fences(1, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fences_a_sleeper_is_forgotten() {
    without_fences(0, false);
}
