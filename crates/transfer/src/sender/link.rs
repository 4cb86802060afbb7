//! The queue pair with its send completions, and the room in its send queue.
//!
//! It belongs to one thread at a time, which drives it as a [`Driver`](super::driver::Driver).
use super::error::Broken;
use crate::refill::ReadsInFlight;
use catchment_verbs::{Cq, Qp, QpState, SendWr};
use std::sync::Arc;

/// Requests of a block that takes one WRITE: that, and the one of its status byte.
pub(super) const LEAST_BLOCK_WRS: u32 = 2;

/// What the send queue can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Send requests outstanding at once, as given to the queue pair; at least one more than the
    /// longest block has WRITEs, so at least 2.
    pub max_send_wr: u32,
    /// Inline bytes of a request, as given to the queue pair; at least 1.
    pub max_inline_bytes: u32,
    /// Longest message of the device ([`catchment_verbs::Caps::max_message_bytes`]); at least 64. A
    /// longer block takes several WRITEs, and a checksum.
    pub max_message_bytes: u64,
}

/// See the module.
pub(super) struct Link {
    pub(super) qp: Box<dyn Qp>,
    pub(super) cq: Arc<dyn Cq>,
    pub(super) limits: QueueLimits,
    /// Requests that the longest block takes.
    pub(super) block_wrs: u64,
    /// Requests posted and requests known to be done, counted from the beginning.
    pub(super) posted: u64,
    pub(super) done: u64,
    /// Requests posted since the last signaled one.
    unsignaled: u64,
    /// Completions that fit into the queue.
    most_signaled: u32,
    /// Completions that are outstanding.
    pub(super) signaled: u32,
    /// READs in flight.
    pub(super) reads_in_flight: ReadsInFlight,
    /// READs in a row that found no release.
    pub(super) empty_reads: usize,
}

impl Link {
    pub(super) fn new(
        qp: Box<dyn Qp>,
        cq: Arc<dyn Cq>,
        limits: QueueLimits,
        block_wrs: u32,
    ) -> Self {
        let most_signaled = cq.capacity();
        Self {
            qp,
            cq,
            limits,
            block_wrs: block_wrs.into(),
            posted: 0,
            done: 0,
            unsignaled: 0,
            most_signaled,
            signaled: 0,
            reads_in_flight: ReadsInFlight::default(),
            empty_reads: 0,
        }
    }

    /// Detects the end of the session where no request would.
    pub(super) fn check(&mut self) -> Result<(), Broken> {
        if self.qp.state() == QpState::Err {
            return Err(Broken::PeerGone);
        }
        Ok(())
    }

    pub(super) fn free_wrs(&self) -> u64 {
        u64::from(self.limits.max_send_wr) - (self.posted - self.done)
    }

    pub(super) fn may_signal(&self) -> bool {
        self.signaled < self.most_signaled
    }

    /// Returns whether the last of so many requests must be signaled: now and then, which is enough to know
    /// that the queue has room again.
    #[inline]
    pub(super) fn is_signal_due(&self, requests: u64) -> bool {
        let unsignaled = self.unsignaled + requests;
        let most = u64::from(self.limits.max_send_wr);
        // When no completion is outstanding, the next block still has room.
        unsignaled * 2 >= most || most - unsignaled < self.block_wrs
    }

    /// Signals the last request now and then.
    pub(super) fn signal_now_and_then(&self, requests: &mut [SendWr<'_>]) {
        let count = requests.len() as u64;
        let due = self.is_signal_due(count);
        if let Some(last) = requests.last_mut().filter(|_| due) {
            last.signaled = true;
            last.wr_id = self.posted + count;
        }
    }

    #[inline]
    pub(super) fn post(&mut self, requests: &[SendWr<'_>]) -> Result<(), Broken> {
        self.qp.post_send(requests).map_err(Broken::Post)?;
        self.posted += requests.len() as u64;
        if requests.last().is_some_and(|last| last.signaled) {
            self.signaled += 1;
            self.unsignaled = 0;
        } else {
            self.unsignaled += requests.len() as u64;
        }
        Ok(())
    }
}
