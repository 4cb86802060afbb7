//! The state of a fabric: its clock, agenda, objects and completions.
use super::connection::QpData;
use super::memory::{Piece, Registered};
use super::queue::CqData;
use super::rnic::{Model, Rnic};
use super::times::Times;
use super::work::{Flight, Receive, Request};
use catchment_verbs::provider::{CqEntry, WorkQueueCredits};
use catchment_verbs::{Access, AsyncEvent, Completion, Failure, QpState, Sge, Success, WcStatus};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The pipe is free for the next request.
    Serve,
    /// A request reaches the peer.
    Reach(u64),
    /// The NIC of the peer has taken it.
    Land(u64),
    /// A request that the peer was not ready for is retried.
    Retry,
    /// The requester gets the result of a request.
    Return(u64),
}

/// A scheduled event of a queue pair in one of its lives: a reset begins a new one.
#[derive(Debug, Clone, Copy)]
struct Planned {
    qpn: u32,
    life: u64,
    event: Event,
}

pub(super) struct World {
    pub(super) times: Times,
    /// What devices are, where they are NICs.
    pub(super) nic: Option<Model>,
    /// Those that did something, by device.
    pub(super) nics: BTreeMap<u32, Rnic>,
    pub(super) now: Duration,
    /// By time, and then in the order of scheduling.
    agenda: BTreeMap<(Duration, u64), Planned>,
    decided: u64,
    /// Numbers assigned so far, to queue pairs, keys and all other objects.
    pub(super) numbers: u32,
    pub(super) regions: BTreeMap<u32, Registered>,
    pub(super) qps: BTreeMap<u32, QpData>,
    pub(super) cqs: BTreeMap<u32, CqData>,
    /// Asynchronous events of each device.
    pub(super) events: BTreeMap<u32, VecDeque<AsyncEvent>>,
}

impl World {
    pub(super) fn new(times: Times) -> Self {
        Self {
            times,
            nic: None,
            nics: BTreeMap::new(),
            now: Duration::ZERO,
            agenda: BTreeMap::new(),
            decided: 0,
            numbers: 0,
            regions: BTreeMap::new(),
            qps: BTreeMap::new(),
            cqs: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    /// Returns a unique number; 24 bits, as a queue pair's must be.
    pub(super) fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// Returns the queue pair with this number, which exists while the application holds it.
    pub(super) fn qp(&mut self, qpn: u32) -> &mut QpData {
        self.qps
            .get_mut(&qpn)
            .expect("a queue pair that the application holds, or an event of its life")
    }

    pub(super) fn next_event(&self) -> Option<Duration> {
        self.agenda.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the next event until then and sets the time to it; without one, sets the time to then.
    pub(super) fn due(&mut self, time: Duration) -> Option<(u32, Event)> {
        while self.next_event().is_some_and(|at| at <= time) {
            let ((at, _), planned) = self.agenda.pop_first()?;
            self.now = self.now.max(at);
            if self.qps.get(&planned.qpn).map(|qp| qp.life) == Some(planned.life) {
                return Some((planned.qpn, planned.event));
            }
        }
        self.now = self.now.max(time);
        None
    }

    pub(super) fn plan(&mut self, at: Duration, qpn: u32, event: Event) {
        let planned = Planned { qpn, life: self.qp(qpn).life, event };
        self.decided += 1;
        self.agenda.insert((at.max(self.now), self.decided), planned);
    }

    /// Completes a send request: a success only if signaled, a failure always.
    pub(super) fn complete_send(
        &mut self,
        qpn: u32,
        (wr_id, seq, signaled): (u64, u64, bool),
        result: Result<Success, WcStatus>,
    ) {
        if result.is_ok() && !signaled {
            return;
        }
        let qp = self.qp(qpn);
        let cq = qp.send_cq;
        let credits = Arc::clone(&qp.posted.credits);
        self.push(cq, entry(qpn, wr_id, result, (credits, seq)), false);
    }

    pub(super) fn complete_recv(
        &mut self,
        qpn: u32,
        (wr_id, seq): (u64, u64),
        result: Result<Success, WcStatus>,
        solicited: bool,
    ) {
        let qp = self.qp(qpn);
        let cq = qp.recv_cq;
        let credits = Arc::clone(&qp.recv_posted.credits);
        self.push(cq, entry(qpn, wr_id, result, (credits, seq)), solicited);
    }

    fn push(&mut self, cq: u32, entry: CqEntry, solicited: bool) {
        let Some(data) = self.cqs.get(&cq) else { return };
        let (device, queue) = (data.device, Arc::clone(&data.queue));
        let failed = entry.completion.result.is_err();
        if queue.push(entry) {
            self.overrun(cq, device);
        }
        queue.announce(solicited || failed || queue.is_overrun());
    }

    /// Fails all queue pairs of a completion queue that lost completions.
    fn overrun(&mut self, cq: u32, device: u32) {
        self.add_event(device, AsyncEvent::CqOverrun);
        let completes = |qp: &QpData| qp.send_cq == cq || qp.recv_cq == cq;
        let broken: Vec<u32> =
            self.qps.iter().filter(|(_, qp)| completes(qp)).map(|(&qpn, _)| qpn).collect();
        for qpn in broken {
            self.fail(qpn, "its completion queue overran");
        }
    }

    /// Moves a queue pair to the error state, with an event.
    pub(super) fn fail(&mut self, qpn: u32, reason: &str) {
        let qp = self.qp(qpn);
        if matches!(qp.state, QpState::Err | QpState::Reset) {
            return;
        }
        let device = qp.device;
        self.add_event(device, AsyncEvent::QpFatal { qpn, reason: reason.to_owned() });
        self.enter_error(qpn);
    }

    /// Moves a queue pair to the error state and flushes everything outstanding.
    pub(super) fn enter_error(&mut self, qpn: u32) {
        let qp = self.qp(qpn);
        qp.state = QpState::Err;
        qp.life += 1;
        qp.arrived.clear();
        (qp.serving, qp.retrying) = (false, false);
        let flights: Vec<Flight> = qp.flights.drain(..).collect();
        let waiting: Vec<Request> = qp.sends.drain(..).collect();
        let recvs: Vec<Receive> = qp.recvs.drain(..).collect();
        for flight in flights {
            // It may have failed already, with its completion in flight.
            let status = flight.done.and_then(Result::err).unwrap_or(WcStatus::Flushed);
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

    /// Returns the pieces that elements name, if all keys, bounds and rights are valid.
    pub(super) fn pieces(&self, sges: &[Sge], pd: u32, needed: Access) -> Option<Vec<Piece>> {
        let piece = |sge: &Sge| {
            let registered = self.regions.get(&sge.lkey)?;
            let may = registered.pd == pd && registered.access.contains(needed);
            may.then(|| registered.piece(sge.addr, u64::from(sge.bytes)))?
        };
        sges.iter().map(piece).collect()
    }

    fn add_event(&mut self, device: u32, event: AsyncEvent) {
        self.events.entry(device).or_default().push_back(event);
    }
}

fn entry(
    qpn: u32,
    wr_id: u64,
    result: Result<Success, WcStatus>,
    (credits, seq): (Arc<WorkQueueCredits>, u64),
) -> CqEntry {
    let result = result.map_err(Failure::from);
    CqEntry { completion: Completion { wr_id, qpn, result }, credits, seq }
}
