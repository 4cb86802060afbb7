//! The transfer of a request: through the pipe, to the peer, and back.
use super::connection::QpData;
use super::memory::{gather, scatter};
use super::responder::{Message, Taken};
use super::rnic::Rnic;
use super::work::{Data, Flight, fetches};
use super::world::{Event, World};
use catchment_verbs::{QpState, WcStatus};
use std::time::Duration;

/// An `rnr_retry` without a limit.
const UNLIMITED: u8 = 7;

impl World {
    pub(super) fn advance_to(&mut self, time: Duration) {
        while let Some((qpn, event)) = self.due(time) {
            self.happen(qpn, event);
        }
    }

    fn happen(&mut self, qpn: u32, event: Event) {
        match event {
            Event::Serve => self.serve(qpn),
            Event::Reach(seq) => self.arrive(qpn, seq),
            Event::Land(seq) => self.reach(qpn, seq),
            Event::Retry => self.retry(qpn),
            Event::Return(seq) => self.complete(qpn, seq),
        }
    }

    /// Schedules the next request, if there is one and the pipe takes it.
    pub(super) fn pump(&mut self, qpn: u32) {
        let qp = self.qp(qpn);
        if qp.may_serve() {
            qp.serving = true;
            let at = qp.pipe_free;
            self.plan(at, qpn, Event::Serve);
        }
    }

    pub(super) fn serve(&mut self, qpn: u32) {
        let (times, now, at_nic) = (self.times, self.now, self.nic.is_some());
        let qp = self.qp(qpn);
        qp.serving = false;
        if !qp.may_serve() {
            return;
        }
        if let Some(opens) = qp.closed_until(now) {
            qp.serving = true;
            self.plan(opens, qpn, Event::Serve);
            return;
        }
        if at_nic {
            return self.serve_at_nic(qpn);
        }
        let Some(request) = qp.sends.pop_front() else { return };
        let (time, pipe) = request.times(&times);
        qp.pipe_free = now + pipe;
        qp.last_reach = qp.last_reach.max(qp.pipe_free + time.reaches);
        let (at, seq) = (qp.last_reach, request.seq);
        qp.flights.push_back(Flight { request, returns: time.returns, fetched: None, done: None });
        self.plan(at, qpn, Event::Reach(seq));
        self.pump(qpn);
    }

    /// Takes all requests of a queue pair into the pipe of its NIC: those of a doorbell follow each other.
    fn serve_at_nic(&mut self, qpn: u32) {
        while self.qp(qpn).may_serve() {
            let now = self.now;
            if let Some(opens) = self.qp(qpn).closed_until(now) {
                self.qp(qpn).serving = true;
                return self.plan(opens, qpn, Event::Serve);
            }
            let qp = self.qp(qpn);
            let device = qp.device;
            let Some(request) = qp.sends.pop_front() else { return };
            let Some(nic) = self.nic_of(device) else { return };
            let bytes = if fetches(request.op) { 0 } else { request.bytes };
            let leaves = nic.send(now, Some(qpn), request.behind.is_some(), bytes);
            let model = nic.model();
            let qp = self.qp(qpn);
            qp.last_reach = qp.last_reach.max(leaves + model.reaches);
            let (at, seq, returns) = (qp.last_reach, request.seq, model.returns);
            qp.flights.push_back(Flight { request, returns, fetched: None, done: None });
            self.plan(at, qpn, Event::Reach(seq));
        }
    }

    /// Returns the NIC of a device, if devices are NICs.
    fn nic_of(&mut self, device: u32) -> Option<&mut Rnic> {
        let model = self.nic?;
        Some(self.nics.entry(device).or_insert_with(|| Rnic::new(model)))
    }

    /// A request is at the peer's device, which may be a NIC that takes its time.
    fn arrive(&mut self, qpn: u32, seq: u64) {
        let now = self.now;
        let qp = self.qp(qpn);
        let peer = qp.peer.map(|attr| attr.remote.qpn);
        let bytes = qp.flight(seq).map(|flight| {
            let bytes = flight.request.bytes;
            if fetches(flight.request.op) { (0, bytes) } else { (bytes, 0) }
        });
        let device = peer.and_then(|peer| self.qps.get(&peer)).map(|peer| peer.device);
        let nic = device.and_then(|device| self.nic_of(device));
        match (nic, bytes) {
            (Some(nic), Some(bytes)) => {
                let done = nic.receive(now, peer, bytes);
                let qp = self.qp(qpn);
                // In the order in which they were sent.
                qp.last_land = qp.last_land.max(done);
                let at = qp.last_land;
                self.plan(at, qpn, Event::Land(seq));
            }
            (None, _) | (_, None) => self.reach(qpn, seq),
        }
    }

    pub(super) fn reach(&mut self, qpn: u32, seq: u64) {
        let qp = self.qp(qpn);
        qp.arrived.push_back(seq);
        if !qp.retrying {
            self.offer(qpn);
        }
    }

    pub(super) fn retry(&mut self, qpn: u32) {
        self.qp(qpn).retrying = false;
        self.offer(qpn);
    }

    /// Offers the peer the requests that have reached it, in order.
    fn offer(&mut self, qpn: u32) {
        while let Some(&seq) = self.qp(qpn).arrived.front() {
            let taken = self.execute_at_peer(qpn, seq);
            let now = self.now;
            let qp = self.qp(qpn);
            let (again, most, gives_up) = match taken {
                Taken::NotReady(after) => (after, qp.rts.rnr_retry, WcStatus::RnrRetryExceeded),
                Taken::Silent => {
                    let most = qp.rts.retry_cnt.min(UNLIMITED - 1);
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
            if most != UNLIMITED && qp.retries >= most {
                self.taken(qpn, seq, Err(gives_up));
                continue;
            }
            qp.retries = qp.retries.saturating_add(1);
            qp.retrying = true;
            return self.plan(now + again, qpn, Event::Retry);
        }
    }

    /// Takes the peer's answer to the oldest request that reached it.
    fn taken(&mut self, qpn: u32, seq: u64, result: Result<Option<Vec<u8>>, WcStatus>) {
        let now = self.now;
        let qp = self.qp(qpn);
        qp.arrived.pop_front();
        qp.retries = 0;
        let Some(flight) = qp.flight(seq) else { return };
        let returns = flight.returns;
        match result {
            Ok(fetched) => flight.fetched = fetched,
            Err(status) => {
                flight.done = Some(Err(status));
                // Requests after one that failed do not reach the peer.
                qp.arrived.clear();
                qp.retrying = true;
            }
        }
        self.plan(now + returns, qpn, Event::Return(seq));
    }

    /// Executes a request at the peer.
    fn execute_at_peer(&mut self, qpn: u32, seq: u64) -> Taken {
        let qp = self.qp(qpn);
        let peer = qp.peer.map(|attr| attr.remote.qpn);
        let (Some(peer), Some(flight)) = (peer, qp.flight(seq)) else { return Taken::Silent };
        let request = &flight.request;
        let data = match &request.data {
            Data::Forbidden => return Taken::Refused(WcStatus::LocalProtection),
            Data::Inline(data) => data.clone(),
            Data::Pieces(_) if fetches(request.op) => Vec::new(),
            Data::Pieces(pieces) => gather(pieces),
        };
        let message =
            Message { op: request.op, bytes: request.bytes, solicited: request.solicited, data };
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

    /// Returns a request's result to the requester; completions keep their order.
    pub(super) fn complete(&mut self, qpn: u32, seq: u64) {
        if let Some(flight) = self.qp(qpn).flight(seq) {
            let done = flight.done.unwrap_or(Ok(()));
            flight.done = Some(done);
            flight.returns = Duration::MAX;
        }
        let returned = |flight: &Flight| flight.returns == Duration::MAX && flight.done.is_some();
        while self.qp(qpn).flights.front().is_some_and(returned)
            && let Some(flight) = self.qp(qpn).flights.pop_front()
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
}
