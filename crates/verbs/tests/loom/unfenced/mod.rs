//! The shipped code with the checker's atomics and a model of futex(2), its fences left out.
pub(crate) mod primitives {
    pub(crate) use crate::bias::thread_number;
    pub(crate) use crate::futex::Futex;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::thread::yield_now;
    pub(crate) fn fence(_: Ordering) {}

    pub(crate) fn available() -> bool {
        true
    }

    pub(crate) fn light() {}

    pub(crate) fn heavy() {}
}
#[path = "../../../src/wait/event_count.rs"]
#[allow(dead_code, unreachable_pub, reason = "written as a part of the crate's interface")]
pub(crate) mod event_count;
#[path = "../../../src/bias/section.rs"]
#[allow(dead_code, unreachable_pub, reason = "written as a part of the crate's interface")]
pub(crate) mod section;
