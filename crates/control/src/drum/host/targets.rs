//! Hosts that applications here send to, and what they answer.
use super::application::{Edge, Sending, Target};
use super::{Answered, Header, Host};
use crate::drum::step::Told;

impl Host {
    /// Takes what a receiver says, if it is news of its newest life, and not older than a lease.
    pub(super) fn take_answers(
        &mut self,
        now: u64,
        from: u32,
        header: Header,
        answers: &[Answered],
    ) {
        let Some(target) = self.targets.get_mut(&from) else { return };
        let old = header.incarnation < target.incarnation || header.seen > self.sequence;
        if old || header.seen + self.config.lease_ns <= now {
            self.counts.refused += 1;
            return;
        }
        if header.incarnation > target.incarnation {
            // What a former life granted is not known to this one.
            *target = Target { incarnation: header.incarnation, ..Target::new(header.seen) };
            self.edges_to(from).for_each(|edge| edge.grant = 0.0);
        }
        let sent = self.sent.map(|sent| sent.1);
        let Some(target) = self.targets.get_mut(&from) else { return };
        target.acknowledged = target.acknowledged.max(header.seen);
        target.heard = target.heard.max(header.seen);
        let returns = std::mem::take(&mut target.lapsed);
        // What comes late says nothing of now.
        let is_news = header.same || header.sequence > target.taken;
        target.answered |= is_news && Some(header.seen) == sent;
        self.newest = self.newest.or_later(header.round);
        if !header.same && is_news {
            let changes = target.taken > 0 && target.change != header.change;
            (target.taken, target.change) = (header.sequence, header.change);
            target.rise = f64::from(header.rise);
            if !self.edges_take(from, header.seen, answers) {
                // It does not know of all that was offered: offer again.
                self.stir();
            }
            if changes {
                self.begin_sending();
            }
        }
        if is_news {
            self.decide_when_all_answered();
        }
        if returns {
            self.changed();
        }
        self.awake |= is_news && !header.still;
    }

    fn edges_to(&mut self, host: u32) -> impl Iterator<Item = &mut Edge> {
        let edges = self.applications.iter_mut().flat_map(|sending| &mut sending.edges);
        edges.filter(move |edge| edge.host == host)
    }

    /// Returns whether every edge was answered.
    fn edges_take(&mut self, from: u32, seen: u64, answers: &[Answered]) -> bool {
        let mut all = true;
        let targets = &self.targets;
        for sending in &mut self.applications {
            let takes_part = sending.takes_part(targets);
            let number = sending.application;
            for edge in sending.edges.iter_mut().filter(|edge| edge.host == from) {
                if !takes_part {
                    // Not offered, so not granted.
                    edge.grant = 0.0;
                    continue;
                }
                let key = (number, edge.application);
                let place = answers.binary_search_by_key(&key, |answer| (answer.from, answer.to));
                let Ok(at) = place else {
                    // Not heard of there yet, or no longer.
                    (edge.grant, all) = (0.0, false);
                    continue;
                };
                let answer = answers[at];
                let curvature = f64::from(answer.curvature);
                edge.told = Some(Told {
                    price: f64::from(answer.price),
                    value: f64::from(answer.value),
                    flatness: 1.0 / (f64::from(answer.edges) * curvature),
                    curvature,
                });
                edge.worth = f64::from(answer.worth);
                if seen >= edge.since {
                    edge.grant = f64::from(answer.grant);
                }
            }
        }
        all
    }

    fn decide_when_all_answered(&mut self) {
        let mut expected = self.targets.values().filter(|target| target.is_expected());
        if expected.all(|target| target.answered) {
            self.decide(true);
        }
    }

    /// Takes nothing as granted by hosts that were not heard of for a lease.
    pub(super) fn expire_targets(&mut self, now: u64) {
        let lease = self.config.lease_ns;
        let over = |target: &Target| !target.lapsed && now >= target.acknowledged + lease;
        let targets = self.targets.iter().filter(|(_, target)| over(target));
        let silent: Vec<u32> = targets.map(|(host, _)| *host).collect();
        silent.into_iter().for_each(|host| self.lose_target(now, host));
    }

    /// A receiver is not there: applications that send to it rest, and others hear that they left.
    pub(super) fn lose_target(&mut self, now: u64, host: u32) {
        let Some(target) = self.targets.get_mut(&host) else { return };
        target.lapsed = true;
        let since = now.max(self.sequence + 1);
        let sends_there = |sending: &&mut Sending| sending.edges.iter().any(|to| to.host == host);
        for sending in self.applications.iter_mut().filter(sends_there) {
            for edge in &mut sending.edges {
                (edge.grant, edge.told, edge.since) = (0.0, None, since);
            }
        }
        self.changed();
    }

    /// When the first lease ends.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        let lease = self.config.lease_ns;
        let ours = self.targets.values().filter(|target| !target.lapsed);
        let ours = ours.map(|target| target.acknowledged + lease);
        ours.chain(self.source_expiries()).min()
    }
}
