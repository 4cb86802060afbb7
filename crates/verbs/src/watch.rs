//! Extensions beyond verbs: filling a peer's memory in place, and sleeping until it changes.
use crate::mem::RegionSlice;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Why [`Watch::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Something was written since [`Watch::arm`], or [`Watch::wake`] was called.
    Rung,
    /// The time is over.
    TimedOut,
}

/// Sleeps until registered memory changes.
///
/// The order that loses no change: [`Watch::arm`], check the memory once more, [`Watch::wait`].
/// A wake-up may come without a change. Not arming costs the writer nothing.
pub trait Watch: Send + Sync {
    /// Makes the next write ring. Orders the caller's following loads after it.
    fn arm(&self);
    /// Disarms, so that writers need not ring.
    fn disarm(&self);
    /// Sleeps until rung or until the time is over, and takes one ring.
    ///
    /// # Errors
    /// Only errors of the operating system.
    fn wait(&self, timeout: Duration) -> io::Result<Wake>;
    /// Rings from this process, to end a [`Watch::wait`] of another thread.
    fn wake(&self);
    /// Returns a descriptor that is readable while rung, for `poll(2)` and event loops; `None` if a
    /// sleeper waits on a word in memory.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Wakes the watcher of a region; made by a provider.
pub trait RemoteBell: Send + Sync {
    /// Makes the caller's earlier stores visible, then rings if the owner armed its watch.
    fn ring(&self);
    /// Returns false once the owner has deregistered the region or is gone.
    fn is_valid(&self) -> bool;
}

/// Part of the peer's registered memory, mapped here ([`crate::Qp::map_remote`]).
///
/// It stays mapped as long as the value lives, even if the peer is gone: what was written can
/// still be read.
#[derive(Clone)]
pub struct RemoteWindow {
    /// The memory. Writable only where the region's rights allow WRITE.
    pub memory: RegionSlice,
    /// Notifies the peer that something was written.
    pub bell: Arc<dyn RemoteBell>,
}
