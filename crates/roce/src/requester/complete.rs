//! Completing requests, in the order in which they were posted.
use super::{Requester, Wqe};
use crate::Psn;
use crate::completion::Completion;
use catchment_verbs_types::{Success, WcStatus};
use std::collections::VecDeque;

impl Requester {
    /// Removes acknowledged packets from the window.
    pub(super) fn release(&mut self) {
        let una = self.engine.una();
        while let Some(wqe) = self.sq.get_mut(self.unacked).filter(|wqe| wqe.sent > 0) {
            let acked = una.distance_from(wqe.first).max(0).cast_unsigned().min(wqe.sent);
            let newly = acked.saturating_sub(wqe.acked);
            if !wqe.request.op.is_read_or_atomic() {
                let bytes = wqe.bytes_of(wqe.acked, newly, self.shape.mtu);
                self.bytes_in_flight = self.bytes_in_flight.saturating_sub(bytes);
            }
            wqe.acked += newly;
            if wqe.acked < wqe.packets {
                return;
            }
            self.unacked += 1;
        }
    }

    /// Completes the done requests at the head of the queue.
    pub(super) fn complete(&mut self, completions: &mut VecDeque<Completion>) {
        while self.sq.front().is_some_and(Wqe::is_done) {
            let Some(wqe) = self.sq.pop_front() else { return };
            self.unsent = self.unsent.saturating_sub(1);
            self.unacked = self.unacked.saturating_sub(1);
            if wqe.request.signaled {
                completions.push_back(succeeded(&wqe));
            }
        }
    }

    /// Records the request that failed, for [`Requester::flush`].
    pub(super) fn blame(&mut self, psn: Psn, status: WcStatus) -> Option<WcStatus> {
        self.blamed = Some(psn);
        Some(status)
    }

    /// Completes everything: the blamed request, or the oldest, with `status`, the others as
    /// flushed. Failures complete unsignaled requests too.
    pub(crate) fn flush(
        &mut self,
        status: Option<WcStatus>,
        completions: &mut VecDeque<Completion>,
    ) {
        let at_fault = self.blamed.and_then(|psn| self.find(psn)).map_or(0, |(index, _)| index);
        for (wqe, index) in self.sq.drain(..).zip(0..) {
            let status = status.filter(|_| index == at_fault).unwrap_or(WcStatus::Flushed);
            completions.push_back(Completion::of_send(wqe.request.wr_id, Err(status)));
        }
        self.stop();
    }
}

pub(crate) fn succeeded(wqe: &Wqe) -> Completion {
    Completion::of_send(wqe.request.wr_id, Ok(Success::plain(wqe.request.op.opcode(), wqe.bytes)))
}
