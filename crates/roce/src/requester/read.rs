//! READs and atomics that were sent and are not fully answered.
//!
//! Under go-back-N answers count in PSN order only: a gap repeats the request from the missing one
//! on, once per gap, unless answers start over without it. Under selective repeat every answer
//! counts, and only missing ones are requested again: a request has at most 64 answers, a bit each.
use super::Requester;
use crate::Psn;
use crate::input::{Arrival, Env};
use crate::recovery::rto::Rto;
use crate::wire::Headers;
use catchment_verbs_types::{SendOp, WcStatus};
use std::collections::VecDeque;

/// Later answers that may arrive before a missing one counts as lost (selective repeat).
const ANSWER_THRESHOLD: i32 = 3;

/// A READ request packet or an atomic.
#[derive(Clone, Copy, Debug)]
struct Open {
    first: Psn,
    packets: u32,
    bytes: u64,
    /// Answers received in order: the index of the first missing one.
    prefix: u32,
    /// Answers received, a bit each (selective repeat).
    got: u64,
    /// Answers to request again: a bit each under selective repeat, otherwise any bit for all
    /// missing ones.
    wanted: u64,
    asked_ns: u64,
    /// The request was repeated.
    repeated: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    open: VecDeque<Open>,
    selective: bool,
    gap: Option<Gap>,
    pub(crate) loss_time_ns: Option<u64>,
    /// How long an answer may take; `None` before the first round trip.
    patience_ns: Option<u64>,
}

/// A missing answer from which on the request was repeated (go-back-N).
#[derive(Clone, Copy, Debug)]
struct Gap {
    missing: Psn,
    /// The latest answer after the gap.
    latest: Psn,
}

impl Open {
    fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    fn index_of(&self, psn: Psn) -> Option<u32> {
        let index = u32::try_from(psn.distance_from(self.first)).ok()?;
        (index < self.packets).then_some(index)
    }

    /// Returns the bits of all its answers (selective repeat).
    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.packets.clamp(1, 64))
    }

    fn missing(&self) -> u64 {
        self.all() & !self.got
    }

    fn is_answered(&self) -> bool {
        self.prefix == self.packets
    }
}

impl Reads {
    pub(crate) fn start(&mut self, selective: bool) {
        self.selective = selective;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn open(&mut self, first: Psn, packets: u32, bytes: u64, now_ns: u64) {
        self.open.push_back(Open {
            first,
            packets,
            bytes,
            prefix: 0,
            got: 0,
            wanted: 0,
            asked_ns: now_ns,
            repeated: false,
        });
    }

    fn position(&self, psn: Psn) -> Option<(usize, u32)> {
        let mut found = self.open.iter().enumerate();
        found.find_map(|(at, open)| Some((at, open.index_of(psn)?)))
    }

    /// Returns the next answers to request again: first PSN and count.
    pub(crate) fn next_ask(&self) -> Option<(Psn, u32)> {
        let open = self.open.iter().find(|open| open.wanted != 0)?;
        if !self.selective {
            return Some((open.first.add(open.prefix), open.packets - open.prefix));
        }
        let start = open.wanted.trailing_zeros();
        Some((open.first.add(start), (open.wanted >> start).trailing_ones()))
    }

    /// Notes that a request from [`Reads::next_ask`] was sent.
    pub(crate) fn on_asked(&mut self, psn: Psn, count: u32, now_ns: u64) {
        let Some((at, index)) = self.position(psn) else { return };
        let open = &mut self.open[at];
        open.asked_ns = now_ns;
        open.repeated = true;
        if self.selective {
            open.wanted &= !(u64::MAX >> (64 - count.clamp(1, 64)) << index);
            self.find_loss_time();
        } else {
            open.wanted = 0;
        }
    }

    /// Notes that the request packet at `psn` is retransmitted; returns its PSNs from there on.
    pub(crate) fn asked_again(&mut self, psn: Psn, now_ns: u64) -> u32 {
        let Some((at, index)) = self.position(psn) else { return 1 };
        self.open[at].asked_ns = now_ns;
        self.open[at].wanted = 0;
        self.open[at].packets - index
    }

    /// Returns the request of answer `psn`, if it is expected now. Out of order it is a gap.
    fn expect(&mut self, psn: Psn) -> Option<usize> {
        let (at, index) = self.position(psn)?;
        if self.selective {
            return (self.open[at].got >> index & 1 == 0).then_some(at);
        }
        let expected = self.open.front().map(|open| open.first.add(open.prefix))?;
        if psn == expected {
            return Some(0);
        }
        if psn.distance_from(expected) > 0 {
            self.on_gap(expected, psn);
        }
        None
    }

    /// Handles an answer `psn` after the expected one: those between are lost, so everything from
    /// the first of them on is requested again (go-back-N). Answers in flight still arrive and are
    /// ignored; only if answers start over without the missing one is it requested once more.
    fn on_gap(&mut self, expected: Psn, psn: Psn) {
        if let Some(gap) = self.gap.as_mut().filter(|gap| gap.missing == expected) {
            let starts_over = psn.distance_from(gap.latest) <= 0;
            gap.latest = psn;
            if !starts_over {
                return;
            }
        }
        self.gap = Some(Gap { missing: expected, latest: psn });
        self.want_all();
    }

    /// Takes the answer `psn` of the request at `at`.
    fn take(&mut self, at: usize, psn: Psn, now_ns: u64) {
        let open = &mut self.open[at];
        let Some(index) = open.index_of(psn) else { return };
        if !self.selective {
            open.prefix += 1;
            open.wanted = 0;
            return;
        }
        open.got |= 1 << index;
        open.wanted &= open.missing();
        open.prefix = open.got.trailing_ones().min(open.packets);
        self.find_losses(at, psn, now_ns);
    }

    /// Marks answers missing before `psn` as lost, if they were requested only once: answers come
    /// in the order of requests.
    fn find_losses(&mut self, at: usize, psn: Psn, now_ns: u64) {
        for open in self.open.range_mut(..=at) {
            let before = psn.distance_from(open.first) - ANSWER_THRESHOLD;
            if open.repeated || before < 0 || open.is_answered() {
                continue;
            }
            let below = u64::MAX >> (63 - before.cast_unsigned().min(63));
            let lost = open.missing() & below;
            if lost != 0 {
                open.wanted |= lost;
                open.repeated = true;
                open.asked_ns = now_ns;
            }
        }
    }

    /// Handles an acknowledgement of `psn`: requests before it were answered, so missing answers
    /// are lost.
    fn on_acknowledged(&mut self, psn: Psn, now_ns: u64) {
        let is_before = |open: &Open| psn.distance_from(open.end()) >= 0;
        if !self.selective {
            if let Some(open) = self.open.front().copied().filter(is_before) {
                self.on_gap(open.first.add(open.prefix), psn);
            }
            return;
        }
        for open in self.open.iter_mut().filter(|open| is_before(open)) {
            if !open.repeated {
                open.wanted = open.missing();
                open.repeated = true;
                open.asked_ns = now_ns;
            }
        }
    }

    /// Requests answers again that a repeated request did not bring in time (selective repeat).
    pub(crate) fn on_time(&mut self, now_ns: u64, rto: &Rto) {
        self.learn(rto);
        let (true, Some(patience_ns)) = (self.selective, self.patience_ns) else { return };
        for open in self.open.iter_mut() {
            let overdue = now_ns >= open.asked_ns.saturating_add(patience_ns);
            if open.repeated && overdue && open.wanted == 0 {
                open.wanted = open.missing();
                open.asked_ns = now_ns;
            }
        }
        self.find_loss_time();
    }

    /// Updates the patience from measured round trips.
    fn learn(&mut self, rto: &Rto) {
        self.patience_ns = rto.recent_ns().map(|rtt| rtt + rtt / 4);
    }

    fn find_loss_time(&mut self) {
        let Some(patience_ns) = self.patience_ns else { return };
        let waiting = |open: &&Open| open.repeated && open.wanted == 0 && !open.is_answered();
        let asked = self.open.iter().filter(waiting).map(|open| open.asked_ns);
        self.loss_time_ns = asked.min().map(|at| at.saturating_add(patience_ns));
    }

    /// Requests all missing answers again.
    pub(crate) fn want_all(&mut self) {
        let selective = self.selective;
        for open in &mut self.open {
            open.wanted = if selective { open.missing() } else { 1 };
        }
    }

    /// Leaves requests that are not delivered to the engine, which retransmits them.
    pub(crate) fn unwant_undelivered(&mut self, una: Psn) {
        for open in &mut self.open {
            if open.first.distance_from(una) >= 0 {
                open.wanted = 0;
            }
        }
    }

    /// Takes out the oldest request if it is answered.
    fn pop_answered(&mut self) -> Option<Open> {
        let answered = self.open.front().is_some_and(Open::is_answered);
        let open = answered.then(|| self.open.pop_front()).flatten()?;
        if self.selective {
            self.find_loss_time();
        }
        Some(open)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.open.capacity() * size_of::<Open>()
    }
}

impl Requester {
    /// Handles a READ response. Any of the four opcodes is accepted: only PSN and length matter.
    pub(super) fn on_read_response(
        &mut self,
        arrival: &Arrival<'_>,
        env: &mut Env<'_>,
    ) -> Option<WcStatus> {
        let psn = arrival.headers.bth.psn;
        self.deliver_answered(psn, env);
        let Some(at) = self.reads.expect(psn) else { return self.ignore_answer(env) };
        let Some((index, packet)) = self.find(psn) else { return self.ignore_answer(env) };
        let wqe = &self.sq[index];
        let bytes = wqe.bytes_of(packet, 1, self.shape.mtu);
        if !matches!(wqe.request.op, SendOp::Read(_)) || arrival.payload.len() as u64 != bytes {
            return self.on_bad_response(psn, env);
        }
        let offset = u64::from(packet) * self.shape.mtu;
        if wqe.request.payload.scatter(offset, arrival.payload, env.memory).is_err() {
            return self.blame(psn, WcStatus::LocalProtection);
        }
        env.counters.bytes_received += bytes;
        self.take_answer(at, psn, env.now_ns);
        None
    }

    /// Handles the result of an atomic operation.
    pub(super) fn on_atomic_acknowledge(
        &mut self,
        headers: &Headers,
        env: &mut Env<'_>,
    ) -> Option<WcStatus> {
        let psn = headers.bth.psn;
        self.deliver_answered(psn, env);
        let Some(at) = self.reads.expect(psn) else { return self.ignore_answer(env) };
        let (Some((index, _)), Some(before)) = (self.find(psn), headers.atomic_ack) else {
            return self.ignore_answer(env);
        };
        let wqe = &self.sq[index];
        if !wqe.request.op.is_atomic() {
            return self.on_bad_response(psn, env);
        }
        let before = before.to_ne_bytes();
        if wqe.request.payload.scatter(0, &before, env.memory).is_err() {
            return self.blame(psn, WcStatus::LocalProtection);
        }
        self.take_answer(at, psn, env.now_ns);
        None
    }

    /// Delivers the answered request and every one before it.
    fn deliver_answered(&mut self, psn: Psn, env: &mut Env<'_>) {
        if let Some((at, _)) = self.reads.position(psn) {
            self.deliver(self.reads.open[at].end().sub(1), env);
            self.reads.learn(&self.rto);
        }
    }

    fn take_answer(&mut self, at: usize, psn: Psn, now_ns: u64) {
        self.reads.take(at, psn, now_ns);
        while let Some(open) = self.reads.pop_answered() {
            if let Some((index, _)) = self.find(open.first) {
                self.sq[index].answered += open.packets;
            }
            self.bytes_in_flight = self.bytes_in_flight.saturating_sub(open.bytes);
        }
        self.rnr_tries = 0;
        self.on_progress(now_ns);
    }

    /// Requests answers again that an acknowledgement overtook.
    pub(super) fn on_acknowledged_past_reads(&mut self, psn: Psn, now_ns: u64) {
        if !self.reads.is_empty() {
            self.reads.on_acknowledged(psn, now_ns);
        }
    }

    /// Handles an answer that does not fit its request: one of ours sends none, so it is forged.
    fn on_bad_response(&mut self, psn: Psn, env: &mut Env<'_>) -> Option<WcStatus> {
        if self.is_challenging() {
            return self.ignore_answer(env);
        }
        self.blame(psn, WcStatus::BadResponse)
    }

    fn ignore_answer(&mut self, env: &mut Env<'_>) -> Option<WcStatus> {
        env.counters.dropped += 1;
        None
    }
}
