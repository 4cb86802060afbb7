//! A queue pair in the fabric: its state, its queues, and its requests in flight.
use super::work::{Flight, Receive, Request, fetches};
use catchment_verbs::provider::WorkQueueCredits;
use catchment_verbs::{Access, Flow, QpState, RtrAttr, RtsAttr, TokenBucket};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct QpData {
    pub(super) device: u32,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) state: QpState,
    /// Resets so far: events of an earlier life are dropped.
    pub(super) life: u64,
    pub(super) pd: u32,
    pub(super) access: Access,
    pub(super) peer: Option<RtrAttr>,
    pub(super) rts: RtsAttr,
    /// Not in the pipe yet.
    pub(super) sends: VecDeque<Request>,
    /// Requests from this number on wait until the queue leaves SQD.
    pub(super) hold_from: u64,
    /// In or past the pipe and not completed, in order.
    pub(super) flights: VecDeque<Flight>,
    /// At the peer and not executed yet, in order.
    pub(super) arrived: VecDeque<u64>,
    /// An event for the next request is scheduled.
    pub(super) serving: bool,
    /// A retry is scheduled.
    pub(super) retrying: bool,
    pub(super) retries: u8,
    pub(super) pipe_free: Duration,
    pub(super) last_reach: Duration,
    /// When the last one is taken by the NIC of the peer.
    pub(super) last_land: Duration,
    /// The rate limit and its token bucket.
    pub(super) pace: Option<(Flow, TokenBucket)>,
    pub(super) recvs: VecDeque<Receive>,
    pub(super) posted: Places,
    pub(super) recv_posted: Places,
}

/// Places of a work queue: requests ever posted, and those freed by polling.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    pub(super) posted: u64,
    pub(super) credits: Arc<WorkQueueCredits>,
}

impl Places {
    pub(super) fn outstanding(&self) -> u64 {
        self.credits.outstanding(self.posted)
    }

    pub(super) fn take(&mut self) -> u64 {
        self.posted += 1;
        self.posted - 1
    }
}

impl QpData {
    pub(super) fn new(device: u32, pd: u32, (send_cq, recv_cq): (u32, u32)) -> Self {
        Self {
            device,
            send_cq,
            recv_cq,
            state: QpState::Reset,
            life: 0,
            pd,
            access: Access::empty(),
            peer: None,
            rts: RtsAttr::default(),
            sends: VecDeque::new(),
            hold_from: u64::MAX,
            flights: VecDeque::new(),
            arrived: VecDeque::new(),
            serving: false,
            retrying: false,
            retries: 0,
            pipe_free: Duration::ZERO,
            last_reach: Duration::ZERO,
            last_land: Duration::ZERO,
            pace: None,
            recvs: VecDeque::new(),
            posted: Places::default(),
            recv_posted: Places::default(),
        }
    }

    pub(super) fn reset(&mut self) {
        let fresh = Self::new(self.device, self.pd, (self.send_cq, self.recv_cq));
        for places in [&self.posted, &self.recv_posted] {
            places.credits.free_before(places.posted);
        }
        *self = Self {
            life: self.life + 1,
            pace: self.pace.take(),
            posted: self.posted.clone(),
            recv_posted: self.recv_posted.clone(),
            ..fresh
        };
    }

    /// Returns until when the rate limit delays the next request; if it does not, charges it.
    pub(super) fn closed_until(&mut self, now: Duration) -> Option<Duration> {
        let request = self.sends.front().filter(|request| !fetches(request.op))?;
        let (flow, bucket) = self.pace.as_mut()?;
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        if bucket.may_send(now_ns, *flow) {
            bucket.take(now_ns, request.bytes, *flow);
            return None;
        }
        Some(Duration::from_nanos(bucket.opens_ns(*flow)))
    }

    /// Returns how long a peer that finds no receive must wait.
    pub(super) fn min_rnr_timer(&self) -> Duration {
        self.peer.map_or(Duration::ZERO, |attr| attr.min_rnr_timer)
    }

    pub(super) fn may_serve(&self) -> bool {
        let waiting = self.sends.front();
        let held = |request: &Request| self.state == QpState::Sqd && request.seq >= self.hold_from;
        matches!(self.state, QpState::Rts | QpState::Sqd)
            && !self.serving
            && waiting.is_some_and(|request| !held(request))
    }

    pub(super) fn flight(&mut self, seq: u64) -> Option<&mut Flight> {
        let mut flights = self.flights.iter_mut();
        flights.find(|flight| flight.request.seq == seq)
    }
}
