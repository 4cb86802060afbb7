//! The shipped code with the checker's atomics and locks, its fences left out.
pub(crate) mod primitives {
    pub(crate) use crate::locks::{Condvar, Mutex};
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) fn fence(_: Ordering) {}
}
#[path = "../../../src/wait/event_count.rs"]
#[allow(dead_code, unreachable_pub, reason = "written as a part of the crate's interface")]
pub(crate) mod event_count;
