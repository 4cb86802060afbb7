//! The way of a request: through the pipe, to the peer, and back.
use super::memory::{gather, scatter};
use super::responder::{Message, Taken};
use super::work::{Data, Flight, Receive, Request, fetches};
use super::world::{Event, World};
use catchment_verbs::provider::Account;
use catchment_verbs::{Access, Flow, QpState, RtrAttr, RtsAttr, TokenBucket, WcStatus};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// An `rnr_retry` that means: for ever.
const FOR_EVER: u8 = 7;

/// A queue pair, as the fabric knows it.
pub(super) struct QpData {
    pub(super) device: u32,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) state: QpState,
    /// Resets so far: what was planned in another life does not happen.
    pub(super) life: u64,
    pub(super) pd: u32,
    pub(super) access: Access,
    pub(super) peer: Option<RtrAttr>,
    pub(super) rts: RtsAttr,
    /// Not in the pipe yet.
    pub(super) sends: VecDeque<Request>,
    /// Requests from this number on wait until the queue leaves SQD.
    pub(super) hold_from: u64,
    /// In the pipe or behind it, not returned, in order.
    flights: VecDeque<Flight>,
    /// Reached the peer, which has not taken them yet, in order.
    arrived: VecDeque<u64>,
    /// An event for the next request is in the agenda.
    serving: bool,
    /// The peer is asked again later.
    retrying: bool,
    retries: u8,
    pipe_free: Duration,
    last_reach: Duration,
    /// The rate limit, and what it is owed.
    pub(super) pace: Option<(Flow, TokenBucket)>,
    pub(super) recvs: VecDeque<Receive>,
    pub(super) posted: Places,
    pub(super) recv_posted: Places,
}

/// Places of a work queue: the number of requests ever posted, and those that polling freed.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    pub(super) posted: u64,
    pub(super) account: Arc<Account>,
}

impl Places {
    pub(super) fn outstanding(&self) -> u64 {
        self.account.outstanding(self.posted)
    }

    pub(super) fn take(&mut self) -> u64 {
        self.posted += 1;
        self.posted - 1
    }
}

impl QpData {
    pub(super) fn new(device: u32, pd: u32, (send_cq, recv_cq): (u32, u32)) -> QpData {
        QpData {
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
            pace: None,
            recvs: VecDeque::new(),
            posted: Places::default(),
            recv_posted: Places::default(),
        }
    }

    pub(super) fn reset(&mut self) {
        let fresh = QpData::new(self.device, self.pd, (self.send_cq, self.recv_cq));
        for places in [&self.posted, &self.recv_posted] {
            places.account.free_before(places.posted);
        }
        *self = QpData {
            life: self.life + 1,
            pace: self.pace.take(),
            posted: self.posted.clone(),
            recv_posted: self.recv_posted.clone(),
            ..fresh
        };
    }

    /// Until when the rate limit keeps the next request back; if it does not, the request counts.
    fn closed_until(&mut self, now: Duration) -> Option<Duration> {
        let request = self.sends.front().filter(|request| !fetches(request.op))?;
        let (flow, bucket) = self.pace.as_mut()?;
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        if bucket.may_send(now_ns, *flow) {
            bucket.take(now_ns, request.bytes, *flow);
            return None;
        }
        Some(Duration::from_nanos(bucket.opens_ns(*flow)))
    }

    fn may_serve(&self) -> bool {
        let waiting = self.sends.front();
        let held = |request: &Request| self.state == QpState::Sqd && request.seq >= self.hold_from;
        matches!(self.state, QpState::Rts | QpState::Sqd)
            && !self.serving
            && waiting.is_some_and(|request| !held(request))
    }

    fn flight(&mut self, seq: u64) -> Option<&mut Flight> {
        let mut flights = self.flights.iter_mut();
        flights.find(|flight| flight.request.seq == seq)
    }
}

impl World {
    /// Lets the pipe take the next request, if there is one and it is free.
    pub(super) fn pump(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        if qp.may_serve() {
            qp.serving = true;
            let at = qp.pipe_free;
            self.plan(at, qpn, Event::Serve);
        }
    }

    pub(super) fn serve(&mut self, qpn: u32) {
        let (times, now) = (self.times, self.now());
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        qp.serving = false;
        if !qp.may_serve() {
            return;
        }
        if let Some(opens) = qp.closed_until(now) {
            qp.serving = true;
            self.plan(opens, qpn, Event::Serve);
            return;
        }
        let Some(request) = qp.sends.pop_front() else {
            return;
        };
        let (time, pipe) = request.times(&times);
        qp.pipe_free = now + pipe;
        qp.last_reach = qp.last_reach.max(qp.pipe_free + time.reaches);
        let (at, seq) = (qp.last_reach, request.seq);
        qp.flights.push_back(Flight {
            request,
            returns: time.returns,
            fetched: None,
            done: None,
        });
        self.plan(at, qpn, Event::Reach(seq));
        self.pump(qpn);
    }

    pub(super) fn reach(&mut self, qpn: u32, seq: u64) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        qp.arrived.push_back(seq);
        if !qp.retrying {
            self.offer(qpn);
        }
    }

    pub(super) fn retry(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.retrying = false;
            self.offer(qpn);
        }
    }

    /// Offers the peer what has reached it, in order.
    fn offer(&mut self, qpn: u32) {
        while let Some(seq) = self
            .qps
            .get(&qpn)
            .and_then(|qp| qp.arrived.front().copied())
        {
            let taken = self.take_at_peer(qpn, seq);
            let now = self.now();
            let Some(qp) = self.qps.get_mut(&qpn) else {
                return;
            };
            let (again, most, gives_up) = match taken {
                Taken::NotReady(after) => (after, qp.rts.rnr_retry, WcStatus::RnrRetryExceeded),
                Taken::Silent => {
                    let most = qp.rts.retry_cnt.min(FOR_EVER - 1);
                    (qp.rts.timeout, most, WcStatus::TransportRetryExceeded)
                }
                Taken::Done(fetched) => {
                    self.taken(qpn, seq, Ok(fetched));
                    continue;
                }
                Taken::Refused(status) => {
                    self.taken(qpn, seq, Err(status));
                    continue;
                }
            };
            if most != FOR_EVER && qp.retries >= most {
                self.taken(qpn, seq, Err(gives_up));
                continue;
            }
            qp.retries = qp.retries.saturating_add(1);
            qp.retrying = true;
            return self.plan(now + again, qpn, Event::Retry);
        }
    }

    /// The peer has decided about the oldest request that reached it.
    fn taken(&mut self, qpn: u32, seq: u64, result: Result<Option<Vec<u8>>, WcStatus>) {
        let now = self.now();
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        qp.arrived.pop_front();
        qp.retries = 0;
        let Some(flight) = qp.flight(seq) else {
            return;
        };
        let returns = flight.returns;
        match result {
            Ok(fetched) => {
                flight.fetched = fetched;
                self.plan(now + returns, qpn, Event::Return(seq));
            }
            Err(status) => {
                flight.done = Some(Err(status));
                // What comes behind a request that failed does not reach the peer.
                qp.arrived.clear();
                qp.retrying = true;
                self.plan(now + returns, qpn, Event::Return(seq));
            }
        }
    }

    /// Executes a request at the peer.
    fn take_at_peer(&mut self, qpn: u32, seq: u64) -> Taken {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return Taken::Silent;
        };
        let peer = qp.peer.map(|attr| attr.remote.qpn);
        let (Some(peer), Some(flight)) = (peer, qp.flight(seq)) else {
            return Taken::Silent;
        };
        let request = &flight.request;
        let data = match &request.data {
            Data::Forbidden => return Taken::Refused(WcStatus::LocalProtection),
            Data::Inline(data) => data.clone(),
            Data::Pieces(_) if fetches(request.op) => Vec::new(),
            Data::Pieces(pieces) => gather(pieces),
        };
        let message = Message {
            op: request.op,
            bytes: request.bytes,
            solicited: request.solicited,
            data,
        };
        let answers = |qp: &QpData| {
            let ready = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
            ready && qp.peer.is_some_and(|attr| attr.remote.qpn == qpn)
        };
        if self.qps.get(&peer).is_some_and(answers) {
            self.execute(peer, &message)
        } else {
            Taken::Silent
        }
    }

    /// The requester learns what became of a request; completions keep their order.
    pub(super) fn come_back(&mut self, qpn: u32, seq: u64) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        if let Some(flight) = qp.flight(seq) {
            let done = flight.done.unwrap_or(Ok(()));
            flight.done = Some(done);
            flight.returns = Duration::MAX;
        }
        let returned = |flight: &Flight| flight.returns == Duration::MAX && flight.done.is_some();
        while let Some(qp) = self.qps.get_mut(&qpn)
            && qp.flights.front().is_some_and(returned)
            && let Some(flight) = qp.flights.pop_front()
        {
            self.finish(qpn, &flight);
        }
    }

    fn finish(&mut self, qpn: u32, flight: &Flight) {
        let request = &flight.request;
        if let (Some(fetched), Data::Pieces(pieces)) = (&flight.fetched, &request.data) {
            scatter(pieces, fetched);
        }
        let place = (request.wr_id, request.seq, request.signaled);
        match flight.done {
            Some(Err(status)) => {
                self.complete_send(qpn, place, Err(status));
                self.enter_error(qpn);
            }
            Some(Ok(())) | None => self.complete_send(qpn, place, Ok(request.success())),
        }
    }

    /// Everything outstanding is flushed.
    pub(super) fn enter_error(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        qp.state = QpState::Err;
        qp.life += 1;
        qp.arrived.clear();
        (qp.serving, qp.retrying) = (false, false);
        let flights: Vec<Flight> = qp.flights.drain(..).collect();
        let waiting: Vec<Request> = qp.sends.drain(..).collect();
        let recvs: Vec<Receive> = qp.recvs.drain(..).collect();
        for flight in flights {
            // It has failed already; its completion was on the way.
            let status = flight
                .done
                .and_then(Result::err)
                .unwrap_or(WcStatus::Flushed);
            let place = (flight.request.wr_id, flight.request.seq, true);
            self.complete_send(qpn, place, Err(status));
        }
        for request in waiting {
            let place = (request.wr_id, request.seq, true);
            self.complete_send(qpn, place, Err(WcStatus::Flushed));
        }
        for receive in recvs {
            let place = (receive.wr_id, receive.seq);
            self.complete_recv(qpn, place, Err(WcStatus::Flushed), false);
        }
    }
}
