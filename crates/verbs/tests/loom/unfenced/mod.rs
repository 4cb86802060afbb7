//! The shipped code with the checker's atomics and a model of futex(2), its fences left out.
pub(crate) mod primitives {
    pub(crate) use crate::futex::Futex;
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) fn fence(_: Ordering) {}
}
#[path = "../../../src/wait/event_count.rs"]
#[allow(dead_code, unreachable_pub, reason = "written as a part of the crate's interface")]
pub(crate) mod event_count;
