//! The send queue of an end that signals as few requests as it can.
use super::EndError;
use catchment_verbs::{Completion, Cq, Qp, QpState, SendWr};
use std::sync::Arc;

/// A queue pair, its completion queue, and the progress of both. Requests are numbered from 1 in the
/// order of posting; a signaled one has its number as `wr_id`.
pub(crate) struct SendQueue {
    pub(crate) qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    max_send_wr: u64,
    /// Requests posted, and requests known to be done.
    pub(crate) posted: u64,
    done: u64,
    /// Requests posted since the last signaled one.
    unsignaled: u64,
    /// Completions that are outstanding.
    signaled: u32,
}

impl SendQueue {
    pub(crate) fn new(qp: Box<dyn Qp>, cq: Arc<dyn Cq>, max_send_wr: u32) -> Self {
        Self {
            qp,
            cq,
            max_send_wr: max_send_wr.into(),
            posted: 0,
            done: 0,
            unsignaled: 0,
            signaled: 0,
        }
    }

    #[inline]
    pub(crate) fn is_done(&self, number: u64) -> bool {
        number <= self.done
    }

    /// Returns whether so many requests are known to fit, the last of them signaled.
    #[inline]
    pub(crate) fn has_room(&self, requests: u64) -> bool {
        self.fits(requests) && self.can_signal()
    }

    #[inline]
    pub(crate) fn fits(&self, requests: u64) -> bool {
        self.max_send_wr - (self.posted - self.done) >= requests
    }

    #[inline]
    pub(crate) fn can_signal(&self) -> bool {
        self.signaled < self.cq.capacity()
    }

    #[inline]
    pub(crate) fn awaits_completion(&self) -> bool {
        self.signaled > 0
    }

    /// Returns whether the last of the next `requests` must be signaled, so that a full queue always
    /// has a completion outstanding.
    #[inline]
    pub(crate) fn is_due(&self, requests: u64) -> bool {
        (self.unsignaled + requests) * 2 >= self.max_send_wr
    }

    /// Posts requests of which only the last may be signaled.
    #[inline]
    pub(crate) fn post(&mut self, requests: &[SendWr<'_>]) -> Result<(), EndError> {
        self.qp.post_send(requests)?;
        let count = requests.len() as u64;
        self.posted += count;
        if requests.last().is_some_and(|last| last.signaled) {
            self.signaled += 1;
            self.unsignaled = 0;
        } else {
            self.unsignaled += count;
        }
        Ok(())
    }

    /// Detects the end of the session where no request would.
    pub(crate) fn check(&self) -> Result<(), EndError> {
        if self.qp.state() == QpState::Err {
            return Err(EndError::PeerGone);
        }
        Ok(())
    }

    pub(crate) fn poll(&mut self) -> Result<(), EndError> {
        if self.signaled > 0 {
            self.take()?;
        }
        Ok(())
    }

    /// Takes completions, also those of unsignaled requests that failed.
    pub(crate) fn take(&mut self) -> Result<(), EndError> {
        let mut out = [Completion::EMPTY; 4];
        loop {
            let n = self.cq.poll(&mut out)?;
            for completion in &out[..n] {
                completion.result.map_err(EndError::from)?;
                self.done = completion.wr_id;
                self.signaled -= 1;
            }
            if n < out.len() {
                return Ok(());
            }
        }
    }
}
