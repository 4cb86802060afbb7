//! Queue pairs of an application.
use super::handles::AgentPd;
use super::link::Link;
use super::qp_core::{QpCore, WorkQueue};
use super::{ANSWER_TIMEOUT, ah};
use crate::entry::{Data, Request, Work};
use crate::protocol::{self, Reply, Transition};
use catchment_verbs::provider::{RecentHandle, check_rate, check_transition, post_each};
use catchment_verbs::wait::{Backoff, BackoffPolicy};
use catchment_verbs::{
    Endpoint, ModifyError, Payload, PostError, PostFailure, Qp, QpState, QpTransition, RateError,
    RateLimit, RecvWr, SendWr, Service,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Looks before a thread sleeps that waits for the agent.
const YIELDS: u32 = 64;

/// The application's queue pair.
pub(super) struct AgentQp {
    core: Arc<QpCore>,
    /// The device may begin with another packet number after a reset.
    endpoint: Endpoint,
    pd: AgentPd,
    recent_ah: RecentHandle<u32>,
}

impl AgentQp {
    pub(super) fn new(core: Arc<QpCore>, endpoint: Endpoint, pd: AgentPd) -> Self {
        Self { core, endpoint, pd, recent_ah: RecentHandle::default() }
    }

    /// Gives requests that were checked to the agent. The first of a batch is published last: the agent, which
    /// looks for it, then finds them all, and does not take the lines away that are being filled. Returns the place of the
    /// last one in the pool.
    #[inline]
    fn give<'a, W>(
        &self,
        queue: &WorkQueue,
        requests: &'a [W],
        of: impl Fn(&'a W) -> (u64, Work, Data, &'a [u8]),
    ) -> Option<u64> {
        let (link, first) = (self.pd.link(), queue.posted.load(Ordering::Relaxed));
        // First, so that a completion finds them.
        for wr in requests {
            queue.note(of(wr).0);
        }
        let (mut given, mut last) = (0, None);
        while given < requests.len() && !link.is_dead() {
            let slots = link.pool.claim(requests.len() - given);
            let (begin, count) = (slots.start, (slots.end - slots.start) as usize);
            if count == 0 {
                break;
            }
            for n in slots.rev() {
                let at = (n - begin) as usize;
                let (_, work, data, inline) = of(&requests[given + at]);
                let seq = first + (given + at) as u64;
                let request = Request { queue_pair: self.core.number, seq, work, data };
                link.pool.give(n, &request, inline);
            }
            given += count;
            last = Some(begin + count as u64 - 1);
        }
        if given < requests.len() {
            self.core.enter_error();
            link.flush_all();
        }
        last
    }

    /// Returns how many requests of a list can be posted, and why the next one cannot.
    #[inline]
    fn count<W>(
        requests: &[W],
        mut check: impl FnMut(u64, &W) -> Result<(), PostFailure>,
    ) -> (usize, Result<(), PostError>) {
        let mut count = 0;
        let mut check = |wr: &W| check(count, wr).inspect(|()| count += 1);
        let result = post_each(requests, &mut check);
        (count as usize, result)
    }

    fn give_sends(&mut self, requests: &[SendWr<'_>]) -> Result<(), PostError> {
        let Self { core, pd, recent_ah, .. } = self;
        let (state, outstanding) = (core.state.get(), core.sends.outstanding());
        let (count, result) = Self::count(requests, |before, wr| {
            core.limits.check_send(state, outstanding + before, wr)?;
            wr.op.destination().map_or(Ok(()), |to| ah::check(recent_ah, pd, to))?;
            let data = Data::of(&wr.payload);
            data.map(drop).ok_or(PostFailure::NotOffered("a payload of this length"))
        });
        self.give(&self.core.sends, &requests[..count], |wr| {
            let SendWr { op, signaled, fence, solicited, .. } = *wr;
            let work = Work::Send { op, signaled, fence, solicited };
            let inline = match wr.payload {
                Payload::Sges(_) => &[],
                Payload::Inline(bytes) => bytes,
            };
            (wr.wr_id, work, Data::of(&wr.payload).unwrap_or(Data::Inline(0)), inline)
        });
        result
    }

    fn give_receives(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let core = &self.core;
        let (state, outstanding) = (core.state.get(), core.receives.outstanding());
        let (count, result) = Self::count(requests, |before, wr| {
            core.limits.check_recv(state, outstanding + before, wr)?;
            let data = Data::of_elements(wr.sges);
            data.map(drop).ok_or(PostFailure::NotOffered("a receive of these elements"))
        });
        let last = self.give(&core.receives, &requests[..count], |wr| {
            let data = Data::of_elements(wr.sges).unwrap_or(Data::Inline(0));
            (wr.wr_id, Work::Receive, data, &[])
        });
        if let Some(last) = last.filter(|_| core.limits.service == Service::Ud) {
            self.wait_for(last);
        }
        result
    }

    /// Waits until the device has a receive: nobody sends a datagram again that comes before it. No longer than for an
    /// answer of the agent.
    fn wait_for(&self, n: u64) {
        let link = self.pd.link();
        link.pool.wake();
        let (began, mut backoff) = (Instant::now(), Backoff::new(BackoffPolicy::default()));
        for look in 0u32.. {
            if link.pool.is_taken(n) || link.is_dead() || began.elapsed() > ANSWER_TIMEOUT {
                return;
            }
            if look < YIELDS {
                std::thread::yield_now();
            } else {
                // An agent rings for completions, and for nothing else.
                std::thread::sleep(backoff.next_sleep());
            }
        }
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
        let queue_pair = self.core.number;
        self.pd.link().remove(&self.core);
        let _ = self.pd.link().call(&protocol::Request::DestroyQp { queue_pair }, &[]);
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
        check_transition((qpn, core.limits.service), self.state(), &transition)?;
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
        let queue_pair = core.number;
        let answer = link.call(&protocol::Request::Modify { queue_pair, to }, &[]);
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
        let posted = self.give_sends(requests);
        self.finish();
        posted
    }

    fn post_recv(&mut self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let posted = self.give_receives(requests);
        self.finish();
        posted
    }

    fn set_rate(&mut self, limit: Option<RateLimit>) -> Result<(), RateError> {
        check_rate(&self.pd.link().caps, "an agent's device", limit)
    }
}
