//! Where threads wait for room in a collector's ring. Only those come here that found no free block.
use catchment_verbs::Watch;
use catchment_verbs::sync::{Condvar, Mutex};
use catchment_verbs::wait::{Backoff, BackoffPolicy};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// How long a thread that finds the link dead waits for the control thread to notice.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Threads that wait for room. One of them sleeps on the doorbell, because a ring wakes one thread
/// only; the others wait for that one.
pub(super) struct WaitingRoom {
    watch: Option<Arc<dyn Watch>>,
    /// Whether a thread sleeps on the watch, or is about to.
    on_watch: Mutex<bool>,
    woken: Condvar,
    /// How long the next thread sleeps where there is no doorbell.
    backoff: Mutex<Backoff>,
}

/// What a thread that waits for room sees.
pub(super) enum Look {
    Room,
    Full,
    Dead,
}

impl WaitingRoom {
    /// Creates a place to wait on `watch`, or for growing times where there is none.
    pub(super) fn new(watch: Option<Arc<dyn Watch>>) -> WaitingRoom {
        WaitingRoom {
            watch,
            on_watch: Mutex::new(false),
            woken: Condvar::new(),
            backoff: Mutex::new(Backoff::new(BackoffPolicy::default())),
        }
    }

    /// Sleeps until `look` may see something else than [`Look::Full`], or the time is over.
    pub(super) fn wait(&self, timeout: Duration, look: impl Fn() -> Look) {
        let Some(watch) = &self.watch else {
            return self.nap(timeout, look);
        };
        let mut on_watch = self.on_watch();
        let follows = std::mem::replace(&mut *on_watch, true);
        if !follows {
            watch.arm();
        }
        // The watch is armed: a release that this look misses will ring.
        match look() {
            Look::Full if follows => {
                drop(self.woken.wait_timeout(on_watch, timeout));
                return;
            }
            Look::Full => {
                drop(on_watch);
                if watch.wait(timeout).is_err() {
                    // The doorbell fails: only time tells.
                    std::thread::sleep(A_MOMENT);
                }
            }
            Look::Room => {
                drop(on_watch);
                std::thread::yield_now();
            }
            Look::Dead => {
                drop(on_watch);
                // Until the control thread notices and takes the link away.
                std::thread::sleep(A_MOMENT);
            }
        }
        if !follows {
            self.leave_watch();
        }
    }

    /// Without a doorbell only time tells. One thread looks again and again, at growing intervals
    /// while there is nothing; the others wait for it.
    fn nap(&self, timeout: Duration, look: impl Fn() -> Look) {
        let mut on_watch = self.on_watch();
        if std::mem::replace(&mut *on_watch, true) {
            drop(self.woken.wait_timeout(on_watch, timeout));
            return;
        }
        drop(on_watch);
        let nap = self.backoff.lock().next_sleep();
        // Waits for the collector to release a block; without a doorbell nothing tells it.
        std::thread::sleep(timeout.min(nap));
        if matches!(look(), Look::Room) {
            self.backoff.lock().reset();
        }
        self.leave_watch();
    }

    /// Ends the sleep of all.
    pub(super) fn wake(&self) {
        if let Some(watch) = &self.watch {
            watch.wake();
        }
    }

    fn leave_watch(&self) {
        *self.on_watch() = false;
        self.woken.notify_all();
    }

    fn on_watch(&self) -> MutexGuard<'_, bool> {
        self.on_watch.lock()
    }
}
