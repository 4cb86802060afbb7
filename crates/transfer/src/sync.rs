//! The atomics of the slot protocol: those of loom in the model checker.
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Orders a SeqCst store before a SeqCst load of another location. The model checker treats such
/// accesses as acquire and release, and needs a fence for what they promise.
#[cfg(loom)]
pub(crate) fn between_seq_cst() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// The accesses themselves keep the order.
#[cfg(not(loom))]
#[inline]
pub(crate) fn between_seq_cst() {}
