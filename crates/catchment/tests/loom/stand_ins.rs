//! Stand-ins that loom sees, no stronger than what they stand for.
use loom::sync::Condvar;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

/// `crossbeam_utils::atomic::AtomicCell` of a pointer: exchanges are AcqRel. The value itself is
/// out of the checker's sight, and changes hands in the order of the exchanges.
pub(crate) struct AtomicCell<T>(AtomicBool, Mutex<T>);

impl<T> AtomicCell<Option<T>> {
    pub(crate) fn new(value: Option<T>) -> Self {
        Self(AtomicBool::new(value.is_some()), Mutex::new(value))
    }

    pub(crate) fn swap(&self, value: Option<T>) -> Option<T> {
        let before = self.0.swap(value.is_some(), Ordering::AcqRel);
        let value = std::mem::replace(&mut *self.1.lock().unwrap(), value);
        assert_eq!(before, value.is_some());
        value
    }

    pub(crate) fn is_lock_free() -> bool {
        true
    }
}

/// `crossbeam_queue::ArrayQueue`, for one producer at a time: a pop may miss a push that is not
/// ordered before it.
pub(crate) struct ArrayQueue<T> {
    capacity: usize,
    pushed: AtomicUsize,
    popped: AtomicUsize,
    entries: Mutex<VecDeque<T>>,
}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            pushed: AtomicUsize::new(0),
            popped: AtomicUsize::new(0),
            entries: Mutex::default(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.popped.load(Ordering::Acquire) >= self.pushed.load(Ordering::Acquire)
    }

    pub(crate) fn push(&self, entry: T) -> Result<(), T> {
        let popped = self.popped.load(Ordering::Acquire);
        let pushed = self.pushed.load(Ordering::Relaxed);
        if pushed - popped == self.capacity {
            return Err(entry);
        }
        self.entries.lock().unwrap().push_back(entry);
        self.pushed.store(pushed + 1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut popped = self.popped.load(Ordering::Acquire);
        while popped < self.pushed.load(Ordering::Acquire) {
            let (next, order) = (popped + 1, Ordering::AcqRel);
            let taken = self.popped.compare_exchange(popped, next, order, Ordering::Acquire);
            match taken {
                Ok(_) => return self.entries.lock().unwrap().pop_front(),
                Err(now) => popped = now,
            }
        }
        None
    }
}

/// `crossbeam_queue::SegQueue`: the same without an end.
pub(crate) struct SegQueue<T>(ArrayQueue<T>);

impl<T> SegQueue<T> {
    pub(crate) fn new() -> Self {
        Self(ArrayQueue::new(usize::MAX))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&self, entry: T) {
        assert!(self.0.push(entry).is_ok());
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }
}

/// `std::sync::OnceLock`, set by one thread.
pub(crate) struct OnceLock<T>(AtomicBool, std::sync::OnceLock<T>);

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false), std::sync::OnceLock::new())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let set = self.0.load(Ordering::Acquire);
        set.then(|| self.1.get().unwrap())
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.1.set(value)?;
        self.0.store(true, Ordering::Release);
        Ok(())
    }
}

/// `catchment_verbs::wait::EventCount`, which has a model of its own.
pub(crate) struct EventCount {
    changes: loom::sync::Mutex<u32>,
    changed: Condvar,
}

impl EventCount {
    pub(crate) fn new() -> Self {
        Self { changes: loom::sync::Mutex::new(0), changed: Condvar::new() }
    }

    pub(crate) fn current(&self) -> u32 {
        *self.changes.lock().unwrap()
    }

    pub(crate) fn notify(&self) {
        *self.changes.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    pub(crate) fn notify_one(&self) {
        *self.changes.lock().unwrap() += 1;
        self.changed.notify_one();
    }

    pub(crate) fn wait(&self, seen: u32, _: Option<Instant>) -> u32 {
        let mut changes = self.changes.lock().unwrap();
        while *changes == seen {
            changes = self.changed.wait(changes).unwrap();
        }
        *changes
    }
}
