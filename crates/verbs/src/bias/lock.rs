//! A lock that is tried, which costs its first thread no atomic operation.
use super::{Bias, Section, Threads};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value for one thread at a time. No thread waits for it, but once: the first thread beside its
/// first one waits until that one has put it back.
///
/// A thread that tries in vain comes before the one that has the value puts it back: what it stored
/// before is visible to that one afterwards. So a thread that leaves its work to the one that has the
/// value needs no fence, if that one looks for such work after it has put the value back.
#[derive(Debug)]
pub struct BiasedLock<T> {
    bias: Bias,
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `taken` gives the value to one thread at a time.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    /// Creates a value that no thread has.
    pub fn new(value: T) -> Self {
        Self { bias: Bias::new(), taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the value, unless a thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        let section = self.bias.enter();
        let taken = match section.threads() {
            Threads::One => {
                let taken = self.taken.load(Ordering::Relaxed);
                self.taken.store(true, Ordering::Relaxed);
                taken
            }
            // Taking and putting back are exchanges of one word: who takes in vain comes before the
            // exchange that puts back, which then sees what was stored before.
            Threads::Many => self.taken.swap(true, Ordering::AcqRel),
        };
        if taken {
            return None;
        }
        Some(BiasedGuard { lock: self, section })
    }
}

/// The value of a [`BiasedLock`], until this is dropped.
#[derive(Debug)]
pub struct BiasedGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    /// Left after the value was put back.
    section: Section<'a>,
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no other thread has the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: no other thread has the value, and this guard is borrowed.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match self.section.threads() {
            Threads::One => self.lock.taken.store(false, Ordering::Release),
            Threads::Many => {
                self.lock.taken.swap(false, Ordering::AcqRel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_has_the_value_and_others_go_away() {
        let lock = BiasedLock::new(1);
        let first = lock.try_lock().unwrap();
        // In vain, and the more so again.
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(first);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut added = 0;
                    while added < 1000 {
                        if let Some(mut value) = lock.try_lock() {
                            *value += 1;
                            added += 1;
                        } else {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut value = loop {
                match lock.try_lock() {
                    Some(value) => break value,
                    None => std::thread::yield_now(),
                }
            };
            *value += 1;
        });
        assert_eq!(*lock.try_lock().unwrap(), 3002);
    }
}
