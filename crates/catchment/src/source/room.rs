//! Threads that wait for room in a collector's ring, after they found no free block.
use catchment_verbs::Watch;
use catchment_verbs::wait::{Backoff, BackoffPolicy, EventCount};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a thread that finds the link dead waits for the control thread to notice.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Sleeps a moment where the link is dead or its doorbell fails: the control thread replaces it.
fn pause() {
    // The control thread sends no notification when it does.
    std::thread::sleep(A_MOMENT);
}

/// Waits as `seen` requires: with `sleep` only if there is still no room.
fn rest(seen: Vacancy, sleep: impl FnOnce()) {
    match seen {
        Vacancy::Room => std::thread::yield_now(),
        Vacancy::Full => sleep(),
        Vacancy::Dead => pause(),
    }
}

/// Threads that wait for room. One of them sleeps on the doorbell, because a ring wakes one thread
/// only; the others wait for that one.
pub(super) struct WaitingRoom {
    watch: Option<Arc<dyn Watch>>,
    /// Whether a thread sleeps on the watch, or is about to.
    has_leader: AtomicBool,
    /// Changes when that thread has left, or has slept for a while.
    left: EventCount,
}

/// Whether there is room in the ring.
pub(super) enum Vacancy {
    Room,
    Full,
    Dead,
}

impl WaitingRoom {
    /// Creates a place to wait on `watch`, or for growing times where there is none.
    pub(super) fn new(watch: Option<Arc<dyn Watch>>) -> Self {
        Self { watch, has_leader: AtomicBool::new(false), left: EventCount::new() }
    }

    /// Sleeps until `check` may return something other than [`Vacancy::Full`], or the timeout.
    pub(super) fn wait(&self, timeout: Duration, check: impl Fn() -> Vacancy) {
        let seen = self.left.current();
        let follows = self.has_leader.swap(true, Ordering::AcqRel);
        if !follows {
            self.lead(timeout, &check);
            self.has_leader.store(false, Ordering::Release);
            self.left.notify();
        } else {
            rest(check(), || {
                // A leader that left since `seen` has changed the count.
                self.left.wait(seen, Some(Instant::now() + timeout));
            });
        }
    }

    /// Sleeps on the doorbell, or for a while where there is none.
    fn lead(&self, timeout: Duration, check: &impl Fn() -> Vacancy) {
        let Some(watch) = &self.watch else { return self.nap(timeout, check) };
        watch.arm();
        // The watch is armed: a release that this check misses will ring.
        rest(check(), || {
            if watch.wait(timeout).is_err() {
                pause();
            }
        });
    }

    /// Polls at growing intervals where there is no doorbell, and wakes the others to poll too.
    fn nap(&self, timeout: Duration, check: &impl Fn() -> Vacancy) {
        let mut backoff = Backoff::new(BackoffPolicy::default());
        let mut left = timeout;
        loop {
            match check() {
                Vacancy::Full if !left.is_zero() => {
                    let nap = backoff.next_sleep().min(left);
                    // Waits for the collector to release a block; without a doorbell there is no
                    // notification.
                    std::thread::sleep(nap);
                    left -= nap;
                    self.left.notify();
                }
                Vacancy::Full | Vacancy::Room => return,
                Vacancy::Dead => return pause(),
            }
        }
    }

    /// Wakes all threads.
    pub(super) fn wake(&self) {
        if let Some(watch) = &self.watch {
            watch.wake();
        }
    }
}
