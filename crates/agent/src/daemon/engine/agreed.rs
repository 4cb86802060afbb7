//! Rates that were agreed with other hosts: what the engine tells of applications, and how it keeps to them.
use super::Engine;
use super::application::Application;
use super::demand::{FIRST_DEMAND, LEAST_DEMAND};
use crate::peer::{Change, Verdict};
use crate::scheduler::ApplicationId;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How often demands are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// What an application that asks for less than it gets may ask for next, beside what it did.
const MARGIN: f64 = 1.25;
/// Who was held by his rate for more than one part of so many of a time asks for more than he gets: who has one
/// request at a time never has all of them waiting.
const HELD: u32 = 10;
/// How often those are looked at who were found to ask for little, and may be held by that: not to wait for the next look.
const LOOK_FOR_HELD: Duration = Duration::from_micros(250);
/// By how much a demand must differ to be told.
const NEWS: f64 = 0.1;

/// Returns whether a demand differs too little from what was told to be told.
fn is_near(told: f64, new: f64) -> bool {
    (new - told).abs() <= NEWS * told
}

/// See the module.
pub(super) struct Agreed {
    pub(super) changes: UnboundedSender<Change>,
    /// When time was given out as budgets last.
    spent: Instant,
    looked: Instant,
    looked_for_held: Instant,
}

impl Agreed {
    pub(super) fn new(changes: UnboundedSender<Change>) -> Self {
        let now = Instant::now();
        Self { changes, spent: now, looked: now, looked_for_held: now }
    }
}

impl Engine {
    /// Returns whether rates are agreed with other hosts, and kept here.
    #[inline]
    pub(super) fn has_agreed_rates(&self) -> bool {
        self.agreed.is_some() && self.mode.decides()
    }

    /// Tells of a new application, which asks for little until it is held by that: nobody gives way to who sends nothing.
    pub(super) fn tell_of_newcomer(&self, key: u64, weight: f64) {
        self.tell_peers(Change::Join { key, weight });
        if self.has_agreed_rates() {
            self.tell_peers(Change::Demand { key, bytes_per_s: FIRST_DEMAND.told });
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
        let Some(agreed) = self.agreed.as_mut().filter(|_| has_agreed_rates) else { return };
        let now = Instant::now();
        self.scheduler.refill(now - std::mem::replace(&mut agreed.spent, now));
        let passed = now - agreed.looked;
        if passed >= LOOK {
            (agreed.looked, agreed.looked_for_held) = (now, now);
            self.look_at_demands(passed);
        } else if now - agreed.looked_for_held >= LOOK_FOR_HELD {
            agreed.looked_for_held = now;
            self.look_for_held();
        }
    }

    /// Who is held already for as long as the next look would ask for is told of at once.
    fn look_for_held(&mut self) {
        let mut news = Vec::new();
        for (key, at) in &self.keys {
            let Some(application) = &mut self.applications[*at] else { continue };
            let demand = &mut application.demand;
            if demand.told.is_none() {
                continue;
            }
            let held_ns = self.scheduler.served(application.id).held_ns - demand.held_ns;
            if Duration::from_nanos(held_ns) > LOOK / HELD {
                demand.told = None;
                news.push(Change::Demand { key: *key, bytes_per_s: None });
            }
        }
        news.into_iter().for_each(|change| self.tell_peers(change));
    }

    /// Returns how long who is held by what he was found to ask for may wait, if anybody is.
    pub(super) fn nap_of_the_held(&self) -> Option<Duration> {
        let is_held = |application: &Application| {
            let asks = application.demand.told.is_some();
            asks && self.scheduler.waiting(application.id) > 0
        };
        let any = self.has_agreed_rates() && self.applications.iter().flatten().any(is_held);
        any.then_some(LOOK / HELD)
    }

    /// Returns whether another look at demands would find nothing new while nobody sends.
    pub(super) fn is_settled(&self) -> bool {
        let is_seen = |application: &Application| {
            let (served, demand) = (self.scheduler.served(application.id), &application.demand);
            let seen = (demand.bytes, demand.emptied, demand.held_ns);
            seen == (served.cost_bytes, served.emptied, served.held_ns)
                && demand.told.is_some_and(|told| is_near(told, LEAST_DEMAND))
        };
        !self.has_agreed_rates() || self.applications.iter().flatten().all(is_seen)
    }

    /// Whoever had nothing waiting at some time, and whose rate did not hold him, asks for little more than he got.
    fn look_at_demands(&mut self, passed: Duration) {
        let mut news = Vec::new();
        for (key, at) in &self.keys {
            let Some(application) = &mut self.applications[*at] else { continue };
            let served = self.scheduler.served(application.id);
            let demand = &mut application.demand;
            let rate = (served.cost_bytes - demand.bytes) as f64 / passed.as_secs_f64();
            let waited = self.scheduler.waiting(application.id) > 0;
            let always = waited && served.emptied == demand.emptied;
            let held = Duration::from_nanos(served.held_ns - demand.held_ns);
            (demand.bytes, demand.emptied, demand.held_ns) =
                (served.cost_bytes, served.emptied, served.held_ns);
            let asks = if always || held > passed / HELD {
                None
            } else {
                Some((MARGIN * rate).max(LEAST_DEMAND))
            };
            let same = match (demand.told, asks) {
                (Some(old), Some(new)) => is_near(old, new),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !same {
                demand.told = asks;
                news.push(Change::Demand { key: *key, bytes_per_s: asks });
            }
        }
        news.into_iter().for_each(|change| self.tell_peers(change));
    }

    /// Does what was agreed.
    pub(super) fn obey(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Rates(rates) => self.set_rates(&rates),
            Verdict::Fail(key, queue_pair) => self.fail_qp(key, queue_pair),
            Verdict::Part(at) => self.part(at),
            Verdict::Release(at) => self.release_receives(at),
            Verdict::KeyAsked { at, host, rkey } => self.answer_key(at, host, rkey),
            Verdict::Key { at, rkey, region } => self.learn_key(at, rkey, region),
            Verdict::Revoke { host, rkey } => self.forget_key(host, rkey),
            Verdict::SharedQpLost(host, number) => self.lose_shared_qp(host, number),
            Verdict::NoSharedQp(host) => self.part_all(host),
            Verdict::SharedQpsGone(host) => self.shared_qps.forget(host),
        }
    }

    fn set_rates(&mut self, rates: &[(u64, f64)]) {
        let mut shares: Vec<(ApplicationId, f64)> = Vec::new();
        let sum: f64 = rates.iter().map(|(_, rate)| rate).sum();
        for (key, rate) in rates {
            let owner = self.keys.get(key).and_then(|at| self.applications[*at].as_mut());
            let Some(application) = owner else { continue };
            application.account.rate_bytes_per_s = *rate;
            application.account.share = if sum > 0.0 { rate / sum } else { 0.0 };
            self.scheduler.set_rate(application.id, *rate);
            shares.push((application.id, rate.max(1.0)));
        }
        self.scheduler.set_shares(&shares);
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
