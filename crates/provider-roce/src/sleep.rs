//! How the engine's thread sleeps without missing work that other threads create, or do themselves.
//!
//! ```text
//! thread: announce the sleep, fence, check once more, sleep
//! others: create work,        fence, does it sleep? then wake it
//! ```
//! With both fences one of the two sees the other. Posted requests are found by the check. What
//! only a turn of the engine finds (a queue pair that was changed, what another thread's turn
//! began) is announced by a flag. `tests/loom` tries every interleaving.
use super::sync::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// A sleep so short that no caller needs to end it.
pub(crate) const NAP: Duration = Duration::from_millis(1);

/// See the module documentation.
pub(crate) struct Sleep {
    /// A queue pair was changed, or another thread did a turn: the thread does another turn before
    /// it sleeps.
    changed: AtomicBool,
    /// The thread sleeps, or is about to: wake it.
    sleeping: AtomicBool,
    /// When its sleep ends at the latest.
    until_ns: AtomicU64,
}

impl Sleep {
    /// Awake.
    pub(crate) fn new() -> Self {
        Self {
            changed: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            until_ns: AtomicU64::new(0),
        }
    }

    /// Announces a sleep of the thread of at most this time; returns false if it must not sleep,
    /// because something changed or `has_work` returns true. A nap ends soon, whatever changed.
    pub(crate) fn begin(
        &self,
        now_ns: u64,
        timeout: Duration,
        has_work: impl FnOnce() -> bool,
    ) -> bool {
        self.until_ns.store(now_ns.saturating_add(timeout.as_nanos() as u64), Ordering::Relaxed);
        self.sleeping.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let changed = timeout > NAP && self.changed.swap(false, Ordering::AcqRel);
        let may = !changed && !has_work();
        if !may {
            self.end();
        }
        may
    }

    /// Notes that the thread is awake.
    pub(crate) fn end(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Call after creating work that the thread's check finds: returns whether to wake it.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel)
    }

    /// Call after a change that only a turn finds: returns whether to wake the thread.
    pub(crate) fn change(&self) -> bool {
        self.changed.store(true, Ordering::Release);
        self.must_wake()
    }

    /// Call when no other thread does the work any more, after storing that: returns whether to wake the thread from
    /// its nap. One that is about to nap sees it in its check.
    pub(crate) fn resume(&self, now_ns: u64) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Acquire)
            && self.naps(now_ns)
            && self.sleeping.swap(false, Ordering::AcqRel)
    }

    /// Returns whether the sleep that was announced ends soon by itself.
    fn naps(&self, now_ns: u64) -> bool {
        self.until_ns.load(Ordering::Relaxed) <= now_ns.saturating_add(NAP.as_nanos() as u64)
    }

    /// Call after another thread's turn at `now_ns`, with the time of the next one, if any: returns
    /// whether to wake the thread. A thread that is about to sleep sees that something changed;
    /// one that naps, or wakes in time, is left alone.
    pub(crate) fn after_turn(&self, now_ns: u64, due_ns: Option<u64>) -> bool {
        self.changed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if !self.sleeping.load(Ordering::Acquire) {
            return false;
        }
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        let is_late = due_ns.is_some_and(|due| due < until_ns);
        !self.naps(now_ns) && is_late && self.sleeping.swap(false, Ordering::AcqRel)
    }
}
