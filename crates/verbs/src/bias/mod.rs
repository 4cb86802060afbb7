//! State of several threads that one thread uses alone most of the time.
//!
//! An atomic read-modify-write costs a thread that is alone as much as any other: it waits until all
//! stores before it have reached the caches, also those to lines that another processor holds. A
//! [`Bias`] belongs to the first thread that enters it. That thread may load and store instead, inside
//! of a [`Section`], until another thread enters. From then on all threads read-modify-write.
//!
//! ```text
//! owner:   busy = 1, owner still me?          load, store, ..., busy = 0
//! another: owner = revoked, membarrier(2), wait until busy = 0, owner = all
//! ```
//! With the barrier one of the two sees the other: the owner finds that it was revoked, or the other
//! finds it busy. The owner's side needs no fence, because membarrier(2) makes each running thread of
//! the process execute one. Where the kernel has no such barrier nobody is ever alone.
//!
//! - [`Bias`]: whether the calling thread is alone;
//! - [`BiasedArc`]: a count of references;
//! - [`BiasedLock`]: a lock that is tried.
//!
//! `tests/loom` runs the shipped [`Bias`] with a fence on both sides, which is what the barrier
//! promises, since the model checker knows no barrier of another thread; and shows that without it
//! two threads get in.
mod arc;
mod barrier;
mod lock;
mod number;
mod section;

pub use arc::BiasedArc;
pub use lock::{BiasedGuard, BiasedLock};
pub use section::{Bias, Section, Threads};

/// What [`Bias`] is built of; the model checker replaces it.
mod primitives {
    pub(super) use super::barrier::{available, heavy, light};
    pub(super) use super::number::thread_number;
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(super) use std::thread::yield_now;
}
