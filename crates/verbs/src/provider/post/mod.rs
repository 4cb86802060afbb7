//! Posting a list of requests, the rights that they need, and the free places of a work queue.
use crate::{Access, Completion, PostError, PostFailure, SendOp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The rights that the local regions of an operation need.
#[inline]
pub fn local_rights(op: &SendOp) -> Access {
    if op.is_read_or_atomic() { Access::LOCAL_WRITE } else { Access::empty() }
}

/// Posts requests in order with `post`, up to the first that it refuses.
///
/// # Errors
/// The index of that request, and why it was refused.
#[inline]
pub fn post_each<W>(
    requests: &[W],
    mut post: impl FnMut(&W) -> Result<(), PostFailure>,
) -> Result<(), PostError> {
    for (index, wr) in requests.iter().enumerate() {
        post(wr).map_err(|reason| PostError { index, reason })?;
    }
    Ok(())
}

/// How many requests of one work queue have left it. They are numbered from 0 in the order of
/// posting, and complete in that order.
#[derive(Debug, Default)]
pub struct WorkQueueCredits {
    freed: AtomicU64,
}

impl WorkQueueCredits {
    /// Returns the number of requests that still occupy the queue, of `posted` ever posted.
    #[inline]
    pub fn outstanding(&self, posted: u64) -> u64 {
        posted - self.freed.load(Ordering::Acquire)
    }

    /// Returns the number of requests that have left the queue.
    #[inline]
    pub fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Frees all requests before number `end`. Calls may come in any order.
    #[inline]
    pub fn free_before(&self, end: u64) {
        self.freed.fetch_max(end, Ordering::AcqRel);
    }
}

/// A completion in its queue, with the request that polling it frees.
#[derive(Debug)]
pub struct CqEntry {
    /// What the application will see.
    pub completion: Completion,
    /// The work queue of the request.
    pub credits: Arc<WorkQueueCredits>,
    /// The number of the request there.
    pub seq: u64,
}

impl CqEntry {
    /// Hands out the completion: its request, and all before it, leave the work queue.
    #[inline]
    pub fn polled(self) -> Completion {
        self.credits.free_before(self.seq + 1);
        self.completion
    }
}

#[cfg(test)]
pub(super) mod tests;
