//! Locks that a panic of another thread does not poison.
//!
//! What a lock of this project protects is consistent between any two statements, or the thread
//! that panicked takes the process down anyway; so every user ignored poisoning. These types do it
//! once. They wrap those of the standard library without cost. With the feature `count-locks` they
//! count each acquisition.
use std::sync::{self, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// Counts of acquisitions, one for each thread.
#[cfg(feature = "count-locks")]
mod counting {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};

    type Counts = Vec<(String, Arc<AtomicU64>)>;

    static COUNTS: Mutex<Counts> = Mutex::new(Vec::new());

    thread_local! {
        static COUNT: Arc<AtomicU64> = {
            let count = Arc::<AtomicU64>::default();
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
            counts.push((name, Arc::clone(&count)));
            count
        };
    }

    /// Counts an acquisition by this thread.
    pub(super) fn count() {
        // A thread that is ending no longer has a count.
        let _ = COUNT.try_with(|count| count.fetch_add(1, Ordering::Relaxed));
    }

    /// Returns the names of the threads of this process that acquired a lock of this module, and
    /// how often each did.
    pub fn acquisitions() -> Vec<(String, u64)> {
        let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let each = counts.iter();
        each.map(|(name, count)| (name.clone(), count.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(feature = "count-locks")]
pub use counting::acquisitions;

/// Counts an acquisition in a build that counts them.
#[inline]
fn count() {
    #[cfg(feature = "count-locks")]
    counting::count();
}

/// A mutual exclusion lock ([`std::sync::Mutex`]) without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Acquires the lock, blocking until it is free.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        count();
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        count();
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value, which the exclusive borrow makes accessible without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A readers-writer lock ([`std::sync::RwLock`]) without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Acquires shared access, blocking while a writer has the lock.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        count();
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires exclusive access, blocking while any other thread has the lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        count();
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable ([`std::sync::Condvar`]) for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Releases the lock, blocks until notified, and acquires the lock again. May return without a
    /// notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Condvar::wait`], for at most `timeout`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Blocks while `condition` holds.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Condvar::wait_while`], for at most `timeout`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, timeout, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_panic_under_a_lock_does_not_lock_others_out() {
        let shared = Arc::new((Mutex::new(1), RwLock::new(1)));
        let theirs = Arc::clone(&shared);
        let panicked = std::thread::spawn(move || {
            let (_one, _two) = (theirs.0.lock(), theirs.1.write());
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        *shared.0.lock() += 1;
        assert_eq!(shared.0.try_lock().as_deref(), Some(&2));
        *shared.1.write() += 1;
        assert_eq!(*shared.1.read(), 2);
    }
}
