//! Where threads wait for room in a collector's ring. Only those come here that found no free block.
use catchment_verbs::Watch;
use catchment_verbs::wait::{Backoff, BackoffPolicy, EventCount};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a thread that finds the link dead waits for the control thread to notice.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Sleeps where the link is dead, or its doorbell fails: until the control thread takes it away.
fn pause() {
    // The control thread sends no notification when it does.
    std::thread::sleep(A_MOMENT);
}

/// Rests after what a thread saw: by `sleep` only where there is still no room.
fn rest(seen: Look, sleep: impl FnOnce()) {
    match seen {
        Look::Room => std::thread::yield_now(),
        Look::Full => sleep(),
        Look::Dead => pause(),
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

/// What a thread that waits for room sees.
pub(super) enum Look {
    Room,
    Full,
    Dead,
}

impl WaitingRoom {
    /// Creates a place to wait on `watch`, or for growing times where there is none.
    pub(super) fn new(watch: Option<Arc<dyn Watch>>) -> Self {
        Self { watch, has_leader: AtomicBool::new(false), left: EventCount::new() }
    }

    /// Sleeps until `look` may see something else than [`Look::Full`], or the time is over.
    pub(super) fn wait(&self, timeout: Duration, look: impl Fn() -> Look) {
        let seen = self.left.current();
        let follows = self.has_leader.swap(true, Ordering::AcqRel);
        if !follows {
            self.lead(timeout, &look);
            self.has_leader.store(false, Ordering::Release);
            self.left.notify();
        } else {
            rest(look(), || {
                // A leader that left since `seen` has changed the count.
                self.left.wait(seen, Some(Instant::now() + timeout));
            });
        }
    }

    /// Sleeps on the doorbell, or for a while where there is none.
    fn lead(&self, timeout: Duration, look: &impl Fn() -> Look) {
        let Some(watch) = &self.watch else { return self.nap(timeout, look) };
        watch.arm();
        // The watch is armed: a release that this look misses will ring.
        rest(look(), || {
            if watch.wait(timeout).is_err() {
                pause();
            }
        });
    }

    /// Polls at growing intervals where there is no doorbell, and lets the others do so.
    fn nap(&self, timeout: Duration, look: &impl Fn() -> Look) {
        let mut backoff = Backoff::new(BackoffPolicy::default());
        let mut left = timeout;
        loop {
            match look() {
                Look::Full if !left.is_zero() => {
                    let nap = backoff.next_sleep().min(left);
                    // Waits for the collector to release a block; without a doorbell there is no
                    // notification.
                    std::thread::sleep(nap);
                    left -= nap;
                    self.left.notify();
                }
                Look::Full | Look::Room => return,
                Look::Dead => return pause(),
            }
        }
    }

    /// Ends the sleep of all.
    pub(super) fn wake(&self) {
        if let Some(watch) = &self.watch {
            watch.wake();
        }
    }
}
