//! The atomics of what `tests/loom` compiles with those of the model checker.
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
