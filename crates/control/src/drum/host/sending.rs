//! What a host does for the applications that send from it.
use super::application::{Edge, Sending, Target};
use super::follow::Stage;
use super::wire::{narrow_down, narrow_positive};
use super::{
    Application, CALM, Header, Host, HostError, Message, Offer, Output, QUARTERS_TO_OFFER,
};
use crate::drum::direct::HostProblem;
use crate::drum::start::{ALONE_RECEIVES, local_use};
use crate::drum::step::{self, Bounds, CLIP, RENEWALS, Scratch};
use crate::drum::utility::{marginal, with_power};
use std::collections::{BTreeMap, BTreeSet};

/// What one rate moves counts so much beside what all together do.
const EACH: f64 = 0.1;

impl Host {
    pub(super) fn join(&mut self, now: u64, application: Application) -> Result<(), HostError> {
        application.check()?;
        let place =
            self.applications.binary_search_by_key(&application.application, |old| old.application);
        let count = self.applications.len() + usize::from(place.is_err());
        let limit = application.limit.unwrap_or(f64::INFINITY);
        let x = limit.min(self.config.send_capacity / count as f64);
        // Answers from before it came are about another.
        let since = now.max(self.sequence + 1);
        let edges = application.destinations.iter().map(|destination| {
            self.targets.entry(destination.host).or_insert_with(|| Target::new(now));
            Edge {
                host: destination.host,
                application: destination.application,
                completions: destination.completions,
                told: None,
                worth: 0.0,
                grant: 0.0,
                inverse: 0.0,
                since,
            }
        });
        let mut new = Sending {
            application: application.application,
            weight: application.weight,
            limit,
            edges: edges.collect(),
            x,
            floor: 0.0,
            alone: x,
            decided: x,
        };
        match place {
            Ok(at) => {
                // What it was granted goes on where it sends to the same place.
                let old = &self.applications[at];
                for edge in &mut new.edges {
                    let ends = (edge.host, edge.application);
                    let same = |old: &&Edge| (old.host, old.application) == ends;
                    if let Some(old) = old.edges.iter().find(same) {
                        *edge = Edge { completions: edge.completions, ..old.clone() };
                    }
                }
                new.x = old.x;
                // Others do not change, so what they cost tells what this one is to have. Not where a weight is another:
                // its rate was an answer, and others would give way before anything is granted.
                let has_same = old.limit == new.limit;
                let price = self.sending.linear;
                let answer = (!has_same).then(|| new.answer_prices(self.config.alpha, price));
                new.x = answer.flatten().unwrap_or(old.x).min(limit).min(self.config.send_capacity);
                new.expect_worth(old.x);
                // More only with what others give up for it.
                (new.decided, new.alone) = (new.x.min(old.decided), old.alone.min(limit));
                self.applications[at] = new;
            }
            Err(at) => self.applications.insert(at, new),
        }
        self.changed();
        Ok(())
    }

    pub(super) fn leave(&mut self, application: u32) {
        let before = self.applications.len();
        self.applications.retain(|old| old.application != application);
        if self.applications.len() != before {
            self.changed();
        }
    }

    /// This host's part of the problem is another: a new epoch begins once all changes were heard.
    pub(super) fn changed(&mut self) {
        self.changed = true;
        self.rounds_before = self.counts.rounds;
        self.stir();
    }

    /// Begins the new epoch, if there is one, from rates that answer what changed.
    pub(super) fn answer_changes(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        self.change += 1;
        self.tells = true;
        self.solve_alone();
        if self.sent.is_some() {
            self.answer_change();
        }
        self.follow.restart();
        self.begin_sending();
    }

    /// Penalties are renewed from here.
    pub(super) fn begin_sending(&mut self) {
        self.renewals = RENEWALS;
        self.applications.iter_mut().for_each(|sending| sending.floor = CLIP * sending.x);
        self.rounds_before = self.counts.rounds;
        self.stir();
    }

    /// There is something to be done.
    pub(super) fn stir(&mut self) {
        self.calm = 0;
        self.awake = true;
        self.guard.begin_epoch();
    }

    /// The shares that this host alone would give, taking what it receives to be as much as it sends.
    fn solve_alone(&mut self) {
        let config = self.config;
        let used = |sending: &Sending| -> f64 {
            let own = sending.edges.iter().filter(|edge| edge.host == config.host);
            own.map(|edge| edge.completions).sum()
        };
        let (mut beta, mut complete) = (Vec::new(), Vec::new());
        for sending in &self.applications {
            let (cost, used) = local_use(config.beta, used(sending), ALONE_RECEIVES);
            beta.push(cost);
            complete.push(used);
        }
        let most = |sending: &Sending| sending.limit.min(config.send_capacity);
        let problem = HostProblem {
            alpha: config.alpha,
            weights: &self.list(|sending| sending.weight),
            beta: &beta,
            send: &vec![1.0; beta.len()],
            complete: &complete,
            limits: Some(&self.list(most)),
            send_capacity: config.send_capacity,
            completion_capacity: config.completion_capacity,
            tolerance: 1e-4,
        };
        let mut x = vec![0.0; beta.len()];
        let (prices, _) = problem.solve(&mut x);
        let fit = (config.send_capacity / x.iter().sum::<f64>()).min(1.0);
        let starts = self.sent.is_none();
        for (sending, x) in self.applications.iter_mut().zip(x) {
            sending.alone = x * fit;
            if starts {
                (sending.x, sending.decided) = (sending.alone, sending.alone);
            }
        }
        self.completing_alone = prices.complete;
        if starts {
            self.sending.linear = prices.send;
            self.completing.linear = prices.complete;
        }
    }

    fn list(&self, value: impl Fn(&Sending) -> f64) -> Vec<f64> {
        self.applications.iter().map(value).collect()
    }

    /// Rates stay, but for applications that know no price yet: they begin as this host alone would
    /// have it. What changes at other hosts is not known here, and rates that answer only the rest go
    /// too far.
    fn answer_change(&mut self) {
        for sending in self.applications.iter_mut().filter(|sending| !sending.is_told()) {
            sending.x = sending.alone;
        }
        self.decide(false);
    }

    /// When the next offers go out, if nothing happens.
    pub(super) fn next_send(&self) -> Option<u64> {
        if self.targets.is_empty() {
            return None;
        }
        let Some((sent, sequence)) = self.sent else { return Some(0) };
        let round = self.config.round_ns;
        let patience = round * QUARTERS_TO_OFFER / 4;
        let mut expected = self.targets.values().filter(|target| target.is_expected());
        Some(if !self.awake && self.is_still() {
            // Again soon where the last was lost: a lease must not end by a few losses in a row.
            let heard = |target: &Target| target.lapsed || target.acknowledged >= sequence;
            let all = self.targets.values().all(heard);
            let lease = self.config.lease_ns;
            sent + if all { lease / 4 } else { patience.max(lease / 16).min(lease / 4) }
        } else if expected.all(|target| target.answered) {
            sent + round
        } else {
            sent + patience
        })
    }

    /// Moves the rates and offers them to every receiver; a host that is still only renews its leases.
    pub(super) fn send(&mut self, now: u64) {
        let renews_leases = !self.awake && self.is_still();
        if !renews_leases {
            self.close_round();
            // Who returns from its own shares offers others than it did: with a change, or prices would step from there.
            self.answer_changes();
            self.counts.rounds += 1;
            self.move_rates();
            let relative = self.relative_sending.max(self.relative_receiving);
            let heard = |target: &Target| target.lapsed || target.heard >= self.told;
            let calm = relative <= CALM
                && self.settled
                && self.renewals + 3 <= RENEWALS
                && self.targets.values().all(heard);
            self.calm = if calm { self.calm + 1 } else { 0 };
            self.awake = false;
        }
        self.leave_targets();
        if !renews_leases {
            self.offering = self.offering.or_later(self.newest).next();
        }
        let sequence = self.next_sequence(now);
        self.sent = Some((now, sequence));
        if std::mem::take(&mut self.tells) {
            self.told = sequence;
        }
        self.drop_grants_of_who_rests(sequence);
        let mut offers = self.make_offers();
        let targets: Vec<u32> = self.targets.keys().copied().collect();
        for to in targets {
            let header = self.offers_header(to, sequence);
            let Some(target) = self.targets.get_mut(&to) else { continue };
            let mut entries = offers.remove(&to).unwrap_or_default();
            let same = renews_leases && target.answered && !target.lapsed;
            if same {
                entries.clear();
            } else {
                target.misses = if target.answered { 0 } else { target.misses + 1 };
                target.answered = false;
            }
            let header = Header { same, ..header };
            if to == self.config.host {
                self.take_offers(now, to, header, &entries);
            } else {
                let bytes = Message::Offers(header, entries).encode();
                self.outputs.push_back(Output::Send { to, bytes });
            }
        }
    }

    /// Who is not offered is not granted anything by answers to these offers or earlier ones, even if he takes part again
    /// before they come.
    fn drop_grants_of_who_rests(&mut self, sequence: u64) {
        let targets = &self.targets;
        let resting = self.applications.iter_mut().filter(|one| !one.takes_part(targets));
        for edge in resting.flat_map(|sending| &mut sending.edges) {
            (edge.grant, edge.since) = (0.0, sequence + 1);
        }
    }

    /// Tells hosts that nothing is sent to any more, until they have heard it.
    fn leave_targets(&mut self) {
        let edges = self.applications.iter().flat_map(|sending| &sending.edges);
        let used: BTreeSet<u32> = edges.map(|edge| edge.host).collect();
        self.targets.retain(|host, target| {
            used.contains(host) || !(target.lapsed || (target.leaves && target.answered))
        });
        for (host, target) in &mut self.targets {
            target.leaves = !used.contains(host);
            self.awake |= target.leaves;
        }
    }

    /// Counts what did not come, and decides by what came.
    fn close_round(&mut self) {
        let others = self.targets.iter().filter(|(host, _)| **host != self.config.host);
        let expected = others.filter(|(_, target)| target.is_expected());
        let answered: Vec<bool> = expected.map(|(_, target)| target.answered).collect();
        let lost = answered.iter().filter(|answered| !**answered).count();
        if self.sent.is_some() {
            self.decide(true);
            // Two messages for each answer: offers, too, may have been lost.
            self.count_losses(2 * answered.len(), lost);
        }
    }

    fn make_offers(&self) -> BTreeMap<u32, Vec<Offer>> {
        let mut offers: BTreeMap<u32, Vec<Offer>> = BTreeMap::new();
        for sending in self.applications.iter().filter(|sending| self.takes_part(sending)) {
            let (marginal, elasticity, _) = sending.marginal(self.config.alpha);
            let x = if self.guard.fallen { sending.alone } else { sending.x };
            for edge in &sending.edges {
                offers.entry(edge.host).or_default().push(Offer {
                    from: sending.application,
                    to: edge.application,
                    value: narrow_positive(edge.completions * x),
                    inverse: narrow_positive(edge.inverse),
                    marginal: narrow_positive(marginal / edge.completions),
                    elasticity: narrow_positive(elasticity),
                    held: narrow_down(edge.grant),
                });
            }
        }
        offers
            .values_mut()
            .for_each(|row| row.sort_unstable_by_key(|offer| (offer.from, offer.to)));
        offers
    }

    fn offers_header(&self, to: u32, sequence: u64) -> Header {
        let target = self.targets.get(&to);
        Header {
            incarnation: self.config.incarnation,
            heard: target.map_or(0, |target| target.incarnation),
            change: self.change,
            sequence,
            seen: target.map_or(0, |target| target.taken),
            still: self.is_still(),
            alone: self.guard.fallen,
            round: self.offering,
            ..Header::default()
        }
    }

    /// The sender's step of the solver, after penalties are renewed; only those before others heard.
    fn move_rates(&mut self) {
        let (alpha, renews) = (self.config.alpha, self.renewals > 0);
        let stage = self.follow.next();
        if stage == Stage::Follow {
            // From what was recovered, as the solver does.
            for sending in self.applications.iter_mut().filter(|sending| sending.decided > 0.0) {
                sending.x = sending.decided;
                sending.floor = CLIP * sending.x;
            }
        }
        self.applications.iter_mut().for_each(|sending| sending.stiffen(alpha, renews));
        self.renewals = self.renewals.saturating_sub(1);
        if stage != Stage::Offer && !self.guard.fallen {
            self.step();
        }
    }

    fn takes_part(&self, sending: &Sending) -> bool {
        sending.takes_part(&self.targets)
    }

    fn step(&mut self) {
        let alpha = self.config.alpha;
        let parts = (0..self.applications.len())
            .filter(|at| self.takes_part(&self.applications[*at]))
            .collect::<Vec<_>>();
        let count = parts.len();
        if count == 0 {
            self.relative_sending = 0.0;
            return;
        }
        let mut scratch = Scratch::<f64>::new(count);
        for (into, at) in parts.iter().enumerate() {
            let sending = &self.applications[*at];
            let price = sending.weight * marginal(alpha, sending.x) - self.sending.linear;
            let sums = sending.coefficients(price / sending.sum());
            (scratch.a[into], scratch.b[into]) = (sums.a, sums.b);
        }
        let list = |value: fn(&Sending) -> f64| -> Vec<f64> {
            parts.iter().map(|at| value(&self.applications[*at])).collect()
        };
        let (limits, weights) = (list(|sending| sending.limit), list(|sending| sending.weight));
        let mut x = list(|sending| sending.x);
        let bounds = Bounds {
            weights: &weights,
            cone: None,
            limits: limits.iter().any(|limit| limit.is_finite()).then_some(&limits[..]),
            capacity: self.config.send_capacity,
            at_least: false,
        };
        let price = &mut self.sending;
        with_power!(alpha, power => {
            step::move_host(power, &bounds, &mut scratch, &mut x, price)
        });
        if !price.linear.is_finite() {
            price.linear = 0.0;
        }
        let least = 1e-6 * self.config.send_capacity / count as f64;
        let (mut moved, mut size, mut each) = (0.0, 0.0, 0.0_f64);
        for (at, x) in parts.into_iter().zip(x) {
            let sending = &mut self.applications[at];
            let x = if x.is_finite() { x.max(least).min(sending.limit) } else { sending.alone };
            let step = x - sending.x;
            sending.x = x;
            moved += step * step;
            size += x * x;
            each = each.max(step.abs() / x.max(1e-30)).max(sending.disagreement());
        }
        // Beside the rates of others one that is much too small would not be seen to move.
        self.relative_sending = (moved.sqrt() / size.sqrt().max(1e-30)).max(EACH * each);
    }

    /// From rates of the iteration to rates that fit what is sent, and answer to rising prices if these
    /// were told of them.
    pub(super) fn decide(&mut self, told: bool) {
        let parts: Vec<bool> =
            self.applications.iter().map(|sending| self.takes_part(sending)).collect();
        let taking = self.applications.iter().zip(&parts).filter(|pair| *pair.1);
        let sum: f64 = taking.map(|(sending, _)| sending.x).sum();
        let fit = (self.config.send_capacity / sum).min(1.0);
        let alpha = self.config.alpha;
        for (sending, takes_part) in self.applications.iter_mut().zip(parts) {
            let rise = |edge: &Edge| {
                edge.completions * self.targets.get(&edge.host).map_or(0.0, |target| target.rise)
            };
            let rise: f64 = sending.edges.iter().map(rise).sum();
            let (marginal, _, answer) = sending.marginal(alpha);
            let factor = if told { answer.at(1.0 + rise / marginal).0 } else { 1.0 };
            sending.decided = if takes_part { sending.x * fit * factor } else { 0.0 };
        }
    }

    /// The rates in force.
    pub(super) fn enforced(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        self.applications.iter().map(|sending| {
            let most = if self.guard.fallen { sending.alone } else { sending.decided };
            let granted = sending.edges.iter().map(|edge| edge.grant / edge.completions);
            (sending.application, granted.fold(most, f64::min))
        })
    }
}
