//! The provider's code with the checker's atomics.
pub(crate) mod sync {
    pub(crate) use crate::flag::AtomicBool;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}
#[path = "../../../src/dirty.rs"]
#[allow(dead_code, reason = "the models need a smaller set")]
pub(crate) mod dirty;
#[path = "../../../src/sleep.rs"]
pub(crate) mod sleep;
