//! A barrier whose cost is on the side that is rare: membarrier(2).
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Returns whether [`heavy`] works here: Linux has it since 4.14, but a sandbox may refuse it.
pub(super) fn available() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // One call too: what was registered may still be refused.
        membarrier(MembarrierCommand::RegisterPrivateExpedited)
            .and_then(|()| membarrier(MembarrierCommand::PrivateExpedited))
            .is_ok()
    })
}

/// Orders accesses of this thread before it against those after it, as seen by a thread that calls
/// [`heavy`]. Costs nothing.
#[inline]
pub(super) fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The other side of [`light`]: every running thread of the process executes a fence.
///
/// # Panics
/// When the kernel refuses what it granted before.
pub(super) fn heavy() {
    fence(Ordering::SeqCst);
    membarrier(MembarrierCommand::PrivateExpedited).expect("a barrier that worked before");
}
