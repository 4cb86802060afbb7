//! The mode `justitia`: who is paced, and the reference flow by which the cap is decided.
use super::Engine;
use crate::daemon::shared_qps::Posted;
use crate::entry::Data;
use crate::justitia::{Kind, Pacing};
use catchment_verbs::{RemoteAddr, SendOp};
use std::time::{Duration, Instant};

/// From one probe to the next.
const PROBE: Duration = Duration::from_micros(20);
/// How often applications are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// The `wr_id` of probes: that of no connection.
const PROBE_ID: u64 = u64::MAX >> 1;

/// See the module.
pub(super) struct Justitia {
    pacing: Pacing,
    /// When the one that is under way was sent.
    sent: Option<Instant>,
    /// The last one.
    probed: Instant,
    looked: Instant,
    spent: Instant,
    /// The place of the one whose turn it is, among those that probes go over.
    turn: usize,
}

/// What an application had done when it was last looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    requests: u64,
    bytes: u64,
    kind: Kind,
}

impl Justitia {
    pub(super) fn new(pacing: Pacing) -> Self {
        let now = Instant::now();
        Self { pacing, sent: None, probed: now, looked: now, spent: now, turn: 0 }
    }
}

impl Engine {
    /// Gives out tokens for the time that passed, and probes.
    pub(super) fn pace(&mut self) {
        let Some(justitia) = &mut self.justitia else { return };
        let now = Instant::now();
        self.scheduler.refill(now - std::mem::replace(&mut justitia.spent, now));
        if now - justitia.looked >= LOOK {
            justitia.looked = now;
            self.look_at_kinds();
        }
        self.probe(now);
    }

    fn look_at_kinds(&mut self) {
        let Some(justitia) = &mut self.justitia else { return };
        let (mut big, mut small, mut weights, mut first) = (0, 0, 0.0, None);
        for application in self.applications.iter_mut().flatten() {
            let served = self.scheduler.served(application.id);
            // Receives move nothing: who waits for many messages may send short ones all the same.
            let all = application.connections.iter().flatten();
            let all = all.filter_map(|id| self.connections[id.index()].as_ref());
            let under_way = all.map(|connection| connection.under_way() as u64).sum();
            let (requests, bytes) = (application.account.requests, served.bytes);
            let seen = &mut application.seen;
            let kind = seen.kind.of(requests - seen.requests, bytes - seen.bytes, under_way);
            *seen = Seen { requests, bytes, kind };
            match kind {
                Kind::Idle => {}
                Kind::Small => small += 1,
                Kind::Big => {
                    big += 1;
                    weights += application.account.weight;
                    first = first.or(Some(application.id));
                }
            }
        }
        justitia.pacing.count(big, small);
        let of_one = justitia.pacing.cap() / weights;
        for application in self.applications.iter_mut().flatten() {
            if let (Kind::Big, Some(first)) = (application.seen.kind, first) {
                let rate = of_one * application.account.weight;
                application.account.rate_bytes_per_s = rate;
                self.scheduler.set_rate(application.id, rate);
                // Tokens are of one stream: what one leaves the next one takes.
                self.scheduler.set_pool(application.id, first);
            } else {
                application.account.rate_bytes_per_s = 0.0;
                self.scheduler.clear_rate(application.id);
            }
        }
    }

    /// Sends a probe if it is time: a WRITE of nothing, over a queue pair of its own.
    fn probe(&mut self, now: Instant) {
        let Some(justitia) = &mut self.justitia else { return };
        let is_time = justitia.sent.is_none() && now - justitia.probed >= PROBE;
        if !is_time || !justitia.pacing.is_needed() {
            return;
        }
        let Some(place) = self.shared_qps.nth_place(justitia.turn) else { return };
        justitia.turn = justitia.turn.wrapping_add(1);
        (justitia.sent, justitia.probed) = (Some(now), now);
        let nowhere = SendOp::Write(RemoteAddr { addr: 0, rkey: 0 });
        self.shared_qps.push(place, Posted::new(PROBE_ID, nowhere, Data::Inline(0)));
        self.give_to(place);
    }

    /// Takes note of a probe that is done; returns whether it is one.
    pub(super) fn take_probe(&mut self, wr_id: u64) -> bool {
        let Some(justitia) = self.justitia.as_mut().filter(|_| wr_id == PROBE_ID) else {
            return false;
        };
        if let Some(sent) = justitia.sent.take() {
            justitia.pacing.probed(sent.elapsed());
        }
        true
    }
}
