//! Sleeping until another thread of this process has changed something.
//!
//! ```text
//! sleeper: read the count, check, count itself as a sleeper, fence, count unchanged? sleep
//! notifier: change something, raise the count,               fence, sleepers? wake them
//! ```
//! With both fences one of the two sees the other. `tests/loom` tries every interleaving.
use super::primitives::{AtomicU32, Futex, Ordering, fence};
use std::time::Instant;

/// Counts changes. A notification costs an increment, a fence and a load while no thread sleeps.
/// There is no lock: sleepers wait on the count itself.
///
/// The order that loses no change: [`EventCount::current`], check for work, [`EventCount::wait`].
#[derive(Debug, Default)]
pub struct EventCount {
    changes: Futex,
    sleepers: AtomicU32,
}

impl EventCount {
    /// Creates an event count without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of changes so far, to be read before checking whether to sleep.
    pub fn current(&self) -> u32 {
        self.changes.word().load(Ordering::Acquire)
    }

    /// Counts a change and wakes all sleepers.
    pub fn notify(&self) {
        if self.count_change() {
            self.changes.wake(u32::MAX);
        }
    }

    /// Counts a change and wakes one sleeper, where one is enough for what changed.
    pub fn notify_one(&self) {
        if self.count_change() {
            self.changes.wake(1);
        }
    }

    /// Counts a change; true if some sleep.
    fn count_change(&self) -> bool {
        self.changes.word().fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Sleeps until there was a change since `seen`, or the deadline has passed; `None` waits
    /// forever. Returns the number of changes so far.
    pub fn wait(&self, seen: u32, deadline: Option<Instant>) -> u32 {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.current() == seen {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            // Returns at once if the count has changed since it was compared here.
            self.changes.wait(seen, left);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.current()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_change_is_missed_between_looking_and_sleeping() {
        let (gate, count) = (EventCount::new(), AtomicU32::new(0));
        let long = Instant::now() + Duration::from_secs(600);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=20_000 {
                    count.store(n, Ordering::SeqCst);
                    gate.notify();
                }
            });
            loop {
                let seen = gate.current();
                if count.load(Ordering::SeqCst) == 20_000 {
                    break;
                }
                gate.wait(seen, Some(long));
            }
        });
        assert!(Instant::now() < long);
        // The deadline has passed already.
        let seen = gate.current();
        assert_eq!(gate.wait(seen, Some(Instant::now())), seen);
    }
}
