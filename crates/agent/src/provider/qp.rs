//! Queue pairs of an application.
use super::handles::AgentPd;
use super::link::Link;
use super::qp_core::{QpCore, WorkQueue};
use crate::entry::{Data, Request, Work};
use crate::protocol::{self, Reply, Transition};
use catchment_verbs::provider::{check_rate, check_transition, post_each};
use catchment_verbs::{
    Endpoint, ModifyError, Payload, PostError, PostFailure, Qp, QpState, QpTransition, RateError,
    RecvWr, SendWr, Service,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The application's queue pair.
pub(super) struct AgentQp {
    core: Arc<QpCore>,
    /// The device may begin with another packet number after a reset.
    endpoint: Endpoint,
    pd: AgentPd,
}

impl AgentQp {
    pub(super) fn new(core: Arc<QpCore>, endpoint: Endpoint, pd: AgentPd) -> Self {
        Self { core, endpoint, pd }
    }

    fn give(
        &self,
        queue: &WorkQueue,
        wr_id: u64,
        work: Work,
        data: Data,
    ) -> Result<(), PostFailure> {
        let seq = queue.posted.load(Ordering::Relaxed);
        let request = Request { qpn: self.core.qpn(), seq, work, data };
        let Some(bytes) = request.encode() else {
            return Err(PostFailure::NotOffered("this operation"));
        };
        // First, so that a completion finds it.
        queue.note(wr_id);
        if self.pd.link().is_dead() || !self.pd.link().pool.give(&bytes) {
            self.core.enter_error();
            self.pd.link().flush_all();
        }
        Ok(())
    }

    fn post_one(&self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        let core = &self.core;
        core.limits.check_send(core.state.get(), core.sends.outstanding(), wr)?;
        let data = match wr.payload {
            Payload::Sges(sges) => Data::of_elements(sges),
            Payload::Inline(bytes) => Data::of_inline(bytes),
        };
        let data = data.ok_or(PostFailure::NotOffered("a payload of this length"))?;
        let SendWr { op, signaled, fence, solicited, .. } = *wr;
        let work = Work::Send { op, signaled, fence, solicited };
        self.give(&core.sends, wr.wr_id, work, data)
    }

    fn post_one_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        let core = &self.core;
        core.limits.check_recv(core.state.get(), core.receives.outstanding(), wr)?;
        let data = Data::of_elements(wr.sges);
        let data = data.ok_or(PostFailure::NotOffered("a receive of these elements"))?;
        self.give(&core.receives, wr.wr_id, Work::Receive, data)
    }

    /// After a batch: wakes the agent, and notices if it has died meanwhile.
    fn finish(&self) {
        let link = self.pd.link();
        link.pool.wake();
        if link.is_dead() {
            link.flush_all();
        }
    }
}

impl Drop for AgentQp {
    fn drop(&mut self) {
        let qpn = self.core.qpn();
        self.pd.link().remove(qpn);
        let _ = self.pd.link().call(&protocol::Request::DestroyQp { qpn }, &[]);
    }
}

impl Qp for AgentQp {
    fn qpn(&self) -> u32 {
        self.core.qpn()
    }

    fn state(&self) -> QpState {
        self.pd.link().progress();
        self.core.state.get()
    }

    fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    fn modify(&mut self, transition: QpTransition) -> Result<(), ModifyError> {
        let (core, qpn) = (&self.core, self.core.qpn());
        check_transition((qpn, Service::Rc), self.state(), &transition)?;
        let failed = |reason| ModifyError::Resources { qpn, what: "the agent", reason };
        let to = Transition::of(&transition).ok_or_else(|| failed(Link::misfit()))?;
        let before = core.state.get();
        let link = self.pd.link();
        if matches!(transition, QpTransition::ToReset) {
            // Late completions of what came before find nothing outstanding.
            core.state.set(QpState::Reset);
        } else if matches!(transition, QpTransition::ToErr) {
            // What is flushed is no failure.
            core.state.set(QpState::Err);
        }
        let answer = link.call(&protocol::Request::Modify { qpn, to }, &[]);
        match answer {
            Ok(reply) => {
                let Reply::Qp { endpoint } = reply else { return Err(failed(Link::misfit())) };
                self.endpoint = protocol::endpoint(&endpoint).unwrap_or(self.endpoint);
            }
            Err(reason) => {
                core.state.set(before);
                let QpTransition::ToRtr(attr) = transition else { return Err(failed(reason)) };
                let peer = attr.remote.gid.redacted();
                return Err(ModifyError::Peer { qpn, peer, reason });
            }
        }
        link.progress();
        if matches!(transition, QpTransition::ToReset) {
            core.sends.reset();
            core.receives.reset();
            core.state.set(QpState::Reset);
        } else if core.state.get() != QpState::Err || before == QpState::Err {
            core.state.set(transition.target());
        }
        Ok(())
    }

    fn post_send(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let posted = post_each(requests, |wr| self.post_one(wr));
        self.finish();
        posted
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let posted = post_each(requests, |wr| self.post_one_recv(wr));
        self.finish();
        posted
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), RateError> {
        check_rate(&self.pd.link().caps, "an agent's device", rate_bps)
    }
}
