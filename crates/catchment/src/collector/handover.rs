//! Passing the worker's half of a stream between the receive thread and the workers.
//!
//! The value is in exactly one place: parked here, or with the thread that took it. Taking it is
//! what entitles, and obliges, a receive thread to hand it to a worker; a worker that runs out of
//! blocks parks it again. Both sides exchange the same cell, so one of the two sees the other's
//! last step:
//!
//! ```text
//! receive thread: count a block,  exchange the cell: got it? give it to a worker
//! worker:         exchange the cell (park),  count again: a block? take it back
//! ```
//! `tests/loom` runs this file, [`growing`](super::growing) and [`ready`](super::ready) through
//! every interleaving.
use super::primitives::AtomicCell;

/// A place for one value.
pub(super) struct Parked<T>(AtomicCell<Option<Box<T>>>);

impl<T> Parked<T> {
    /// Creates a place that holds `value`.
    pub(super) fn new(value: Box<T>) -> Self {
        Self(AtomicCell::new(Some(value)))
    }

    /// Takes the value, if it is parked. To be called after a change that its owner must see.
    pub(super) fn take(&self) -> Option<Box<T>> {
        self.0.swap(None)
    }

    /// Parks the value. Returns it if `has_more` says that there is more to do with it and no other
    /// thread has taken it meanwhile.
    pub(super) fn park(&self, value: Box<T>, has_more: impl FnOnce() -> bool) -> Option<Box<T>> {
        // An exchange and not a store: it must see what was done before the last `take`.
        let before = self.0.swap(Some(value));
        debug_assert!(before.is_none(), "the value was in two places");
        if has_more() { self.take() } else { None }
    }
}
