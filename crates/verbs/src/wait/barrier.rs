//! A fence that a sleeper makes for the writers of all processes: membarrier(2), global expedited.
//!
//! A writer looks for a sleeper after each store, a sleeper looks once before it sleeps. So the fence that both
//! need ([`super::arm`]) is left to the sleeper: it makes all running threads of all registered processes execute
//! one. A writer whose process is registered makes none, if its sleeper has promised that.
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Registers this process, once. Returns whether it is registered and may call [`heavy`]: Linux has both since
/// 4.16, but a sandbox may refuse them.
pub fn available() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // One call too: what was registered may still be refused.
        membarrier(MembarrierCommand::RegisterGlobalExpedited)
            .and_then(|()| membarrier(MembarrierCommand::GlobalExpedited))
            .is_ok()
    })
}

/// Orders accesses of this thread before it against those after it, as seen by a thread that calls [`heavy`], if
/// this process is registered. Costs nothing.
#[inline]
pub fn light() {
    compiler_fence(Ordering::SeqCst);
}

/// The other side of [`light`]: every running thread of every registered process executes a fence, and the
/// caller too. Interrupts their processors.
///
/// # Panics
/// When the kernel refuses what it granted before.
pub fn heavy() {
    fence(Ordering::SeqCst);
    membarrier(MembarrierCommand::GlobalExpedited).expect("a barrier that worked before");
}
