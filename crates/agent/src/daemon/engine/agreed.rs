//! Rates that were agreed with other hosts: what the engine tells of applications, and how it keeps to them.
use super::Engine;
use super::application::Application;
use super::demand::{Demand, LOOK};
use super::steps::clock_ns;
use crate::peer::{Brought, Change, Rate, Verdict};
use crate::scheduler::{ApplicationId, Served};
use catchment_control::drum::Working;
use rustix::time::ClockId;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How often those are looked at who were found to ask for little, and may be held by that: not to wait for the next look.
const LOOK_FOR_HELD: Duration = Duration::from_micros(250);
/// Beyond so many applications time is given out no more often than so much of it has passed for each of the others: to
/// go over all of them takes a tenth of that.
const FEW: usize = 64;
const EACH: Duration = Duration::from_nanos(100);

/// See the module.
pub(super) struct Agreed {
    pub(super) changes: UnboundedSender<Change>,
    pub(super) brought: Brought,
    /// What the device can send to other hosts, where that is given, and what of it works.
    working: Option<Working>,
    began: Instant,
    /// When time was given out as budgets last.
    spent: Instant,
    looked: Instant,
    looked_for_held: Instant,
}

impl Agreed {
    pub(super) fn new(
        (changes, brought): (UnboundedSender<Change>, Brought),
        send_bytes_per_s: Option<u64>,
    ) -> Self {
        let now = Instant::now();
        Self {
            changes,
            brought,
            working: send_bytes_per_s.map(|stated| Working::new(stated, 0)),
            began: now,
            spent: now,
            looked: now,
            looked_for_held: now,
        }
    }
}

impl Engine {
    /// Returns whether rates are agreed with other hosts, and kept here.
    #[inline]
    pub(super) fn has_agreed_rates(&self) -> bool {
        self.agreed.is_some() && self.mode.decides()
    }

    /// Returns what an application asks for that comes.
    pub(super) fn first_demand(&self) -> Demand {
        let working = self.agreed.as_ref().and_then(|agreed| agreed.working.as_ref());
        Demand::new(working.map(Working::stated_bytes_per_s))
    }

    /// Tells of a new application, which asks for little until it is held by that: nobody gives way to who sends nothing.
    pub(super) fn tell_of_newcomer(&self, key: u64, weight: f64, demand: Demand) {
        self.tell_peers(Change::Join { key, weight });
        if self.has_agreed_rates() {
            self.tell_peers(Change::Demand { key, bytes_per_s: demand.told() });
        }
    }

    /// Tells who agrees on rates with other hosts, if anybody does.
    pub(super) fn tell_peers(&self, change: Change) {
        if let Some(agreed) = &self.agreed {
            // Lost only when the agent ends.
            let _ = agreed.changes.send(change);
        }
    }

    /// Gives applications what they may send in the time since it was last done.
    #[inline]
    pub(super) fn spend_time(&mut self) {
        let has_agreed_rates = self.has_agreed_rates();
        let Some(agreed) = self.agreed.as_mut().filter(|_| has_agreed_rates) else {
            self.spend_time_of_bounded();
            return;
        };
        let now = Instant::now();
        let many = self.applications.len().saturating_sub(FEW);
        if now - agreed.spent >= EACH * many as u32 {
            self.scheduler.refill(now - std::mem::replace(&mut agreed.spent, now));
        }
        let passed = now - agreed.looked;
        if passed >= LOOK {
            (agreed.looked, agreed.looked_for_held) = (now, now);
            self.look_at_demands(passed);
            self.look_at_capacity(now);
        } else if now - agreed.looked_for_held >= LOOK_FOR_HELD {
            agreed.looked_for_held = now;
            self.look_for_held();
        }
    }

    /// Gives those time who have a most, where there are no rates.
    #[inline]
    fn spend_time_of_bounded(&mut self) {
        if self.scheduler.has_most() {
            let now = Instant::now();
            self.scheduler.refill(now - std::mem::replace(&mut self.refilled, now));
        }
    }

    /// Tells what can be sent, where that is more or less than before.
    fn look_at_capacity(&mut self, now: Instant) {
        let Some(agreed) = &mut self.agreed else { return };
        let now_ns = (now - agreed.began).as_nanos() as u64;
        let news = agreed.working.as_mut().and_then(|working| {
            let changed = working.look(now_ns, self.scheduler.behind());
            changed.then_some(working.bytes_per_s())
        });
        if let Some(bytes_per_s) = news {
            self.tell_peers(Change::Working { bytes_per_s });
        }
    }

    /// Notes at the end of a turn who is served later than his rate says.
    #[inline]
    pub(super) fn note_who_is_behind(&mut self) {
        if self.has_agreed_rates() {
            self.scheduler.end_turn();
        }
    }

    /// Who is held already for as long as the next look would ask for is told of at once.
    fn look_for_held(&mut self) {
        self.tell_demands(|demand, served, _| demand.look_for_held(served));
    }

    fn look_at_demands(&mut self, passed: Duration) {
        self.tell_demands(|demand, served, is_waiting| demand.look(served, is_waiting, passed));
    }

    /// Tells of demands that `look` finds to be news, from what was served and whether anything waits.
    fn tell_demands(&mut self, mut look: impl FnMut(&mut Demand, Served, bool) -> bool) {
        let mut news = Vec::new();
        for (key, at) in &self.keys {
            let Some(application) = &mut self.applications[*at] else { continue };
            let served = self.scheduler.served(application.id);
            let is_waiting = self.scheduler.waiting(application.id) > 0;
            let demand = &mut application.demand;
            if look(demand, served, is_waiting) {
                news.push(Change::Demand { key: *key, bytes_per_s: demand.told() });
            }
        }
        news.into_iter().for_each(|change| self.tell_peers(change));
    }

    /// Returns how long who is held by what he was found to ask for may wait, if anybody is.
    pub(super) fn nap_of_the_held(&self) -> Option<Duration> {
        let is_held = |application: &Application| {
            let asks_little = application.demand.is_little();
            asks_little && self.scheduler.waiting(application.id) > 0
        };
        let any = self.has_agreed_rates() && self.applications.iter().flatten().any(is_held);
        any.then_some(Demand::longest_held())
    }

    /// Returns whether another look at demands would find nothing new while nobody sends.
    pub(super) fn is_settled(&self) -> bool {
        let is_settled = |application: &Application| {
            application.demand.is_settled(self.scheduler.served(application.id))
        };
        !self.has_agreed_rates() || self.applications.iter().flatten().all(is_settled)
    }

    /// Does what was agreed.
    pub(super) fn obey(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Rates(rates) => self.set_rates(&rates),
            Verdict::Fail(key, queue_pair) => self.fail_qp(key, queue_pair),
            Verdict::Part(at) => self.part(at),
            Verdict::NotShared(at) => self.part_or_end(at),
            Verdict::Release(at) => self.release_receives(at),
            Verdict::KeyAsked { at, host, rkey } => self.answer_key(at, host, rkey),
            Verdict::Key { at, rkey, region } => self.learn_key(at, rkey, region),
            Verdict::Revoke { host, rkey } => self.forget_key(host, rkey),
            Verdict::SharedQpLost(host, number) => self.lose_shared_qp(host, number),
            Verdict::SharedQpFree(host, number) => self.shared_qps.free(host, number),
            Verdict::NoSharedQp(host) => self.part_all(host),
            Verdict::SharedQpsGone(host) => {
                self.forget_way(host);
                self.shared_qps.forget(host);
            }
            Verdict::Carry(all) => self.carry(all),
        }
    }

    fn set_rates(&mut self, rates: &[Rate]) {
        let (mut shares, mut is_other): (Vec<(ApplicationId, f64)>, bool) = (Vec::new(), false);
        let sum: f64 = rates.iter().map(|rate| rate.bytes_per_s).sum();
        for Rate { key, bytes_per_s, pool } in rates {
            let pool = self.keys.get(pool).and_then(|at| self.applications[*at].as_ref());
            let pool = pool.map(|first| first.id);
            let owner = self.keys.get(key).and_then(|at| self.applications[*at].as_mut());
            let Some(application) = owner else { continue };
            is_other |= application.account.rate_bytes_per_s.total_cmp(bytes_per_s).is_ne();
            application.account.rate_bytes_per_s = *bytes_per_s;
            application.account.share = if sum > 0.0 { bytes_per_s / sum } else { 0.0 };
            self.scheduler.set_rate(application.id, *bytes_per_s);
            self.scheduler.set_pool(application.id, pool.unwrap_or(application.id));
            shares.push((application.id, bytes_per_s.max(1.0)));
        }
        self.scheduler.set_shares(&shares);
        if is_other {
            self.decided_ns = Some(clock_ns(ClockId::Monotonic));
        }
    }

    fn fail_qp(&mut self, key: u64, queue_pair: u32) {
        let Some(connection) = self.find(key, queue_pair) else { return };
        let id = connection.id;
        if connection.shared.is_some() {
            self.fail_shared(id, None);
            return;
        }
        // Lent ones are about to be in another state anyway.
        let Some(qp) = connection.qp.as_mut() else { return };
        let qpn = connection.qpn;
        if qp.fail() {
            self.tell_failed(qpn);
        }
    }
}
