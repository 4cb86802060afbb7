//! The shipped files without their fences.
mod primitives {
    pub(super) use crate::stand_ins::{ArrayQueue, AtomicCell, EventCount, OnceLock, SegQueue};
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
    pub(super) fn fence(_: Ordering) {}

    pub(super) fn relax(_: u32) {}
}

#[path = "../../src/collector/growing.rs"]
mod growing;
#[path = "../../src/collector/handover.rs"]
mod handover;
#[path = "../../src/collector/ready.rs"]
mod ready;

models!();
