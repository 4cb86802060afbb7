//! Sleeping until another thread of this process has changed something.
use std::{
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// Counts changes. Costs an increment and a load while nobody sleeps.
#[derive(Default)]
pub(super) struct Gate {
    changes: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    /// Changes so far: to be read before one looks whether to sleep.
    pub(super) fn seen(&self) -> u32 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Something changed.
    pub(super) fn notify(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Who has counted itself is asleep or sees the change.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }

    /// Sleeps until there was a change since `seen`, or the deadline has passed.
    pub(super) fn wait(&self, seen: u32, deadline: Instant) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.changes.load(Ordering::SeqCst) == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            let woken = self.changed.wait_timeout(guard, left);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_is_missed_between_looking_and_sleeping() {
        let (gate, count) = (Gate::default(), AtomicU32::new(0));
        let long = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=20_000 {
                    count.store(n, Ordering::SeqCst);
                    gate.notify();
                }
            });
            loop {
                let seen = gate.seen();
                if count.load(Ordering::SeqCst) == 20_000 {
                    break;
                }
                gate.wait(seen, long);
            }
        });
        assert!(Instant::now() < long);
        // The time is over at once.
        gate.wait(gate.seen(), Instant::now());
    }
}
