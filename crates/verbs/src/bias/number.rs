//! A number for each thread of the process.
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of this thread, which no other thread of the process ever has.
#[inline]
pub(super) fn thread_number() -> u64 {
    match NUMBER.get() {
        0 => number_this_thread(),
        number => number,
    }
}

#[cold]
fn number_this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}
