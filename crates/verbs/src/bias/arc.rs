//! A count of references that costs its first thread no atomic operation.
use super::{Bias, Threads};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

struct Inner<T> {
    bias: Bias,
    /// References. It would take centuries to overflow.
    count: AtomicU64,
    value: T,
}

/// A value with several owners, as [`std::sync::Arc`]. The first thread that clones or drops one
/// counts with plain loads and stores, until another thread does either.
pub struct BiasedArc<T> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: the value is shared between the threads that hold a reference, and dropped by one of them;
// the count is guarded by its bias.
unsafe impl<T: Send + Sync> Send for BiasedArc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for BiasedArc<T> {}

impl<T> BiasedArc<T> {
    /// Creates the first reference.
    pub fn new(value: T) -> Self {
        let inner = Box::new(Inner { bias: Bias::new(), count: AtomicU64::new(1), value });
        Self { inner: NonNull::from(Box::leak(inner)) }
    }

    #[inline]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: it is freed by the last reference only, and this is one.
        unsafe { self.inner.as_ref() }
    }

    /// Returns the number of references: while others clone and drop theirs, some number it had.
    #[inline]
    pub fn count(this: &Self) -> u64 {
        this.inner().count.load(Ordering::Acquire)
    }

    /// Returns the value, if this is the only reference.
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        if !Self::is_only(this) {
            return None;
        }
        // SAFETY: there is no other reference, and this one is borrowed.
        Some(unsafe { &mut this.inner.as_mut().value })
    }

    /// Returns the value, if this is the only reference.
    ///
    /// # Errors
    /// The reference itself if it is not.
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        if !Self::is_only(&this) {
            return Err(this);
        }
        let inner = this.inner.as_ptr();
        std::mem::forget(this);
        // SAFETY: `new` leaked this box, and its only reference was just forgotten.
        Ok(unsafe { Box::from_raw(inner) }.value)
    }

    /// Who sees a count of one sees all that the other references did: they were dropped by this
    /// thread, or another one's drop was an atomic operation, or it left a section before.
    fn is_only(this: &Self) -> bool {
        let _section = this.inner().bias.enter();
        Self::count(this) == 1
    }
}

impl<T> Clone for BiasedArc<T> {
    #[inline]
    fn clone(&self) -> Self {
        let inner = self.inner();
        let section = inner.bias.enter();
        match section.threads() {
            Threads::One => {
                let before = inner.count.load(Ordering::Relaxed);
                inner.count.store(before + 1, Ordering::Relaxed);
            }
            Threads::Many => {
                inner.count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Self { inner: self.inner }
    }
}

impl<T> Drop for BiasedArc<T> {
    #[inline]
    fn drop(&mut self) {
        let before = {
            let inner = self.inner();
            let section = inner.bias.enter();
            match section.threads() {
                Threads::One => {
                    let before = inner.count.load(Ordering::Relaxed);
                    inner.count.store(before - 1, Ordering::Release);
                    before
                }
                Threads::Many => inner.count.fetch_sub(1, Ordering::Release),
            }
        };
        if before == 1 {
            fence(Ordering::Acquire);
            // SAFETY: `new` leaked this box, and no reference is left: each other thread that had one
            // either subtracted it in one atomic operation, its last access, or left its section
            // before this thread could enter.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

impl<T> Deref for BiasedArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_last_reference_drops_the_value_whichever_thread_has_it() {
        for elsewhere in [false, true] {
            let value = Arc::new(());
            let first = BiasedArc::new(Arc::clone(&value));
            let clones: Vec<_> = (0..9).map(|_| first.clone()).collect();
            assert_eq!(BiasedArc::count(&first), 10);
            drop(first);
            assert_eq!(Arc::strong_count(&value), 2);
            if elsewhere {
                std::thread::spawn(move || drop(clones)).join().unwrap();
            } else {
                drop(clones);
            }
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }

    #[test]
    fn threads_that_clone_and_drop_at_once_lose_no_count() {
        let value = Arc::new(());
        let first = BiasedArc::new(Arc::clone(&value));
        for _ in 0..100 {
            drop(first.clone());
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        drop(first.clone());
                    }
                });
            }
            for _ in 0..2000 {
                drop(first.clone());
            }
        });
        assert_eq!(BiasedArc::count(&first), 1);
        drop(first);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn only_the_only_reference_gives_the_value_away() {
        let mut first = BiasedArc::new(7);
        *BiasedArc::get_mut(&mut first).unwrap() += 1;
        let second = first.clone();
        assert!(BiasedArc::get_mut(&mut first).is_none());
        let Err(first) = BiasedArc::try_unwrap(first) else { panic!("there are two") };
        drop(second);
        assert_eq!(BiasedArc::try_unwrap(first).ok(), Some(8));
    }
}
