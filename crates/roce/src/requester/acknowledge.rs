//! ACK, NAK, RNR NAK and SACK (IBTA volume 1, 9.7.5.2).
use super::{Requester, RnrWait};
use crate::Psn;
use crate::input::{Arrival, Env};
use crate::recovery::Clock;
use crate::recovery::sack::Sack;
use crate::timers::nanos;
use crate::wire::aeth::rnr_timer;
use crate::wire::{NakCode, Syndrome};
use catchment_verbs_types::{SendOp, WcStatus};

impl Requester {
    pub(super) fn on_acknowledge(
        &mut self,
        arrival: &Arrival<'_>,
        env: &mut Env<'_>,
    ) -> Option<WcStatus> {
        let psn = arrival.headers.bth.psn;
        let syndrome = arrival.headers.aeth?.syndrome;
        if !self.engine.covers(psn) || !self.is_plausible(psn, syndrome, arrival.held_from) {
            env.counters.dropped += 1;
            return None;
        }
        match syndrome {
            Syndrome::Ack { .. } => {
                self.deliver(psn, env);
                self.on_acknowledged_past_reads(psn, env.now_ns);
                None
            }
            Syndrome::Rnr { timer } => self.on_rnr_nak(psn, timer, env),
            Syndrome::Nak(code) => self.on_nak(psn, code, env),
            Syndrome::Other(_) => {
                env.counters.dropped += 1;
                None
            }
        }
    }

    /// Returns whether the peer can have said this of `psn`, which is in flight. It refuses only what has
    /// left the driver. One of ours misses no packets under selective repeat, where a SACK says which, and a
    /// receive only for a request that takes one.
    fn is_plausible(&self, psn: Psn, syndrome: Syndrome, held_from: Option<Psn>) -> bool {
        let has_left = held_from.is_none_or(|from| psn.distance_from(from) < 0);
        match syndrome {
            Syndrome::Ack { .. } | Syndrome::Other(_) => true,
            Syndrome::Nak(NakCode::PsnSequence) => has_left && !self.engine.is_selective(),
            Syndrome::Nak(_) => has_left,
            Syndrome::Rnr { .. } => has_left && (!self.is_challenging() || self.takes_receive(psn)),
        }
    }

    /// Returns whether the request of `psn` takes a receive of the peer.
    fn takes_receive(&self, psn: Psn) -> bool {
        self.find(psn).is_some_and(|(index, _)| match self.sq[index].request.op {
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::SendTo(_)
            | SendOp::SendImmTo(..)
            | SendOp::WriteImm(..) => true,
            SendOp::Write(_)
            | SendOp::Read(_)
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. } => false,
        })
    }

    /// Notes that requests up to and including `psn` have arrived.
    pub(super) fn deliver(&mut self, psn: Psn, env: &mut Env<'_>) {
        if !self.engine.covers(psn) {
            return;
        }
        let mut clock = Clock { now_ns: env.now_ns, rto: &mut self.rto, counters: env.counters };
        self.engine.on_ack(psn, &mut clock);
        self.release();
        self.follow_path(env.now_ns);
        if self.rnr.is_some_and(|rnr| !self.engine.covers(rnr.psn)) {
            self.rnr = None;
        }
        self.rnr_tries = 0;
        self.on_progress(env.now_ns);
    }

    /// Acknowledges everything before `psn`, as a NAK for it implies.
    pub(super) fn deliver_before(&mut self, psn: Psn, env: &mut Env<'_>) {
        if psn != self.engine.una() {
            self.deliver(psn.sub(1), env);
            self.on_acknowledged_past_reads(psn.sub(1), env.now_ns);
        }
    }

    /// Handles a NAK (PSN sequence error). While the peer has no receive for `psn`, every later
    /// packet is a gap to it. Kernel rxe answers each with a NAK for `psn`; those are ignored,
    /// because they would resend the window in vain.
    pub(super) fn on_sequence_nak(&mut self, psn: Psn, env: &mut Env<'_>) {
        env.counters.sequence_naks_received += 1;
        let waits = |rnr: RnrWait| rnr.psn == psn && env.now_ns < rnr.until_ns;
        if self.rnr.is_some_and(waits) {
            return;
        }
        self.deliver_before(psn, env);
        let mut clock = Clock { now_ns: env.now_ns, rto: &mut self.rto, counters: env.counters };
        self.engine.on_sequence_nak(psn, &mut clock);
    }

    fn on_rnr_nak(&mut self, psn: Psn, timer: u8, env: &mut Env<'_>) -> Option<WcStatus> {
        env.counters.rnr_naks_received += 1;
        if self.rnr.is_some_and(|rnr| rnr.psn == psn) {
            return None;
        }
        self.engine.on_answered(psn);
        self.deliver_before(psn, env);
        let limit = self.limits.rnr_retry;
        if limit != 7 && self.rnr_tries >= limit {
            return self.blame(psn, WcStatus::RnrRetryExceeded);
        }
        self.rnr_tries = self.rnr_tries.saturating_add(1);
        let until_ns = env.now_ns.saturating_add(nanos(rnr_timer(timer)));
        self.rnr = Some(RnrWait { psn, until_ns });
        self.tries = 0;
        self.rto.suspend(until_ns);
        self.engine.on_rnr_nak(psn);
        None
    }

    pub(super) fn on_sack(&mut self, arrival: &Arrival<'_>, env: &mut Env<'_>) -> Option<WcStatus> {
        let cumulative = arrival.headers.bth.psn;
        let Some(sack) = Sack::decode(cumulative, arrival.payload) else {
            env.counters.dropped += 1;
            return None;
        };
        self.engine.on_kept(&sack);
        self.deliver(cumulative, env);
        let mut clock = Clock { now_ns: env.now_ns, rto: &mut self.rto, counters: env.counters };
        if self.engine.on_sack(&sack, &mut clock) {
            self.on_progress(env.now_ns);
            self.follow_path(env.now_ns);
        }
        None
    }

    /// Learns about the path once in a round trip.
    fn follow_path(&mut self, now_ns: u64) {
        self.path.on_arrival(now_ns);
        let Some(mark) = self.path.mark().filter(|mark| self.engine.has_arrived(*mark)) else {
            return;
        };
        debug_assert!(self.engine.is_selective(), "transmission {mark} has a number");
        let in_flight = self.bytes_in_flight.saturating_sub(self.engine.settled_bytes());
        self.path.end_round(self.engine.progress(), in_flight, self.rto.latest_ns, now_ns);
    }
}
