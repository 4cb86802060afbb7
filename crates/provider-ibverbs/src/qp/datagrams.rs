//! Posting datagrams.
use super::IbQp;
use crate::cores::AhCore;
use catchment_verbs::provider::Handle;
use catchment_verbs::{PostError, PostFailure, SendWr, Service};
use std::sync::Arc;

impl IbQp {
    /// As [`catchment_verbs::Qp::post_send`], for UD. A datagram holds its address handle until it
    /// is done.
    pub(super) fn post_datagrams(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        self.let_go_of_ways();
        let first = self.slot.sends.posted();
        let mut right = 0;
        let mut wrong = Ok(());
        for (seq, wr) in (first..).zip(requests) {
            match self.check_datagram(seq, wr) {
                Ok(way) => self.ways.push_back((seq, way)),
                Err(reason) => {
                    wrong = Err(PostError { index: right, reason });
                    break;
                }
            }
            right += 1;
        }
        let (requests, start) = (&requests[..right], self.ways.len() - right);
        let given = self.give_sends(requests, |ids| {
            self.qp.post_datagrams(requests, ids, |n: usize| &self.ways[start + n].1.object.native)
        });
        // What the device refused is not outstanding.
        let posted = self.slot.sends.posted();
        self.ways.retain(|(seq, _)| *seq < posted);
        given.and(wrong)
    }

    fn let_go_of_ways(&mut self) {
        let posted = self.slot.sends.posted();
        let done = posted - self.slot.sends.outstanding(posted);
        while self.ways.front().is_some_and(|(seq, _)| *seq < done) {
            self.ways.pop_front();
        }
    }

    /// Whether a datagram may be posted as number `seq`; its address handle.
    fn check_datagram(
        &self,
        seq: u64,
        wr: &SendWr<'_>,
    ) -> Result<Arc<Handle<AhCore>>, PostFailure> {
        let outstanding = self.slot.sends.outstanding(seq);
        self.limits.check_send(self.slot.state.get(), outstanding, wr)?;
        let to = wr.op.destination().ok_or(PostFailure::Service(Service::Ud))?;
        let way = self.way(to.ah)?;
        let (asked, limit) = (wr.payload.bytes(), u64::from(way.object.path_mtu));
        if asked > limit {
            return Err(PostFailure::MessageTooLong { asked, limit });
        }
        Ok(way)
    }

    fn way(&self, number: u32) -> Result<Arc<Handle<AhCore>>, PostFailure> {
        let last = self.ways.back().map(|(_, way)| way);
        if let Some(way) = last.filter(|way| way.number() == number && way.is_valid()) {
            return Ok(Arc::clone(way));
        }
        let found = self.device().ahs.find(number);
        let ours = |way: &Arc<Handle<AhCore>>| Arc::ptr_eq(&way.object.domain, &self.pd.domain);
        found.filter(ours).ok_or(PostFailure::Destination(
            "its protection domain has no address handle of that number",
        ))
    }
}
