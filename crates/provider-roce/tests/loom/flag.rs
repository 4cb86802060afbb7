//! A flag of the model checker whose stores are swaps.
//!
//! When one thread stores and another one swaps, loom does not take from fences which came first,
//! and reports what no machine does: a swap that reads what was there before a store that it must
//! see. Of two swaps it knows. Every order of them is tried, so none is lost.
use loom::sync::atomic::{self, Ordering};

pub(crate) struct AtomicBool(atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool(atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.swap(value, order);
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value, order)
    }
}
