//! Posting datagrams.
use super::IbQp;
use crate::cores::AhCore;
use catchment_verbs::provider::Handle;
use catchment_verbs::{PostError, PostFailure, SendWr, Service};
use std::sync::Arc;

impl IbQp {
    /// Like [`catchment_verbs::Qp::post_send`], for UD. A datagram holds its handle until done.
    pub(super) fn post_datagrams(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.release_handles();
        let first = self.slot.sends.posted();
        let mut right = 0;
        let mut wrong = Ok(());
        for (seq, wr) in (first..).zip(requests) {
            match self.check_datagram(seq, wr) {
                Ok(handle) => self.handles.push_back((seq, handle)),
                Err(reason) => {
                    wrong = Err(PostError { index: right, reason });
                    break;
                }
            }
            right += 1;
        }
        let (requests, start) = (&requests[..right], self.handles.len() - right);
        let result = self.post_sends(requests, |ids| {
            self.qp
                .post_datagrams(requests, ids, |n: usize| &self.handles[start + n].1.object.native)
        });
        // What the device refused is not outstanding.
        let posted = self.slot.sends.posted();
        self.handles.retain(|(seq, _)| *seq < posted);
        result.and(wrong)
    }

    fn release_handles(&mut self) {
        let posted = self.slot.sends.posted();
        let done = posted - self.slot.sends.outstanding(posted);
        while self.handles.front().is_some_and(|(seq, _)| *seq < done) {
            self.handles.pop_front();
        }
    }

    /// Checks whether a datagram may be posted as number `seq`; returns its address handle.
    fn check_datagram(
        &self,
        seq: u64,
        wr: &SendWr<'_>,
    ) -> Result<Arc<Handle<AhCore>>, PostFailure> {
        let outstanding = self.slot.sends.outstanding(seq);
        self.limits.check_send(self.slot.state.get(), outstanding, wr)?;
        let to = wr.op.destination().ok_or(PostFailure::Service(Service::Ud))?;
        let handle = self.handle(to.ah)?;
        let (asked, limit) = (wr.payload.bytes(), u64::from(handle.object.path_mtu));
        if asked > limit {
            return Err(PostFailure::MessageTooLong { asked, limit });
        }
        Ok(handle)
    }

    fn handle(&self, number: u32) -> Result<Arc<Handle<AhCore>>, PostFailure> {
        let last = self.handles.back().map(|(_, handle)| handle);
        if let Some(handle) = last.filter(|handle| handle.number() == number && handle.is_valid()) {
            return Ok(Arc::clone(handle));
        }
        let found = self.device().ahs.find(number);
        let ours =
            |handle: &Arc<Handle<AhCore>>| Arc::ptr_eq(&handle.object.domain, &self.pd.domain);
        found.filter(ours).ok_or(PostFailure::UNKNOWN_AH)
    }
}
