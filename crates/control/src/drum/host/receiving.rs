//! What a host does for the applications that complete on it.
use super::application::is_far;
use super::follow::Stage;
use super::ledger::Ledger;
use super::wire::{narrow, narrow_down};
use super::{Answered, CALM, Header, Host, Message, Offer, Output};
use crate::drum::answer::{Answer, rise_step};
use crate::drum::fill::Price;
use crate::drum::step::{self, Bounds, CLIP, COMPLETIONS, RENEWALS, Receiver, Scratch};
use crate::drum::utility::completion_marginal;
use std::collections::{BTreeMap, BTreeSet};

/// One edge that ends here.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    /// The edge value.
    value: f64,
    pub(super) inverse: f64,
    pub(super) offered: f64,
    pub(super) fresh: bool,
    /// Sequence of the newest offer that data carried.
    pub(super) carried: u64,
    /// Whether it was offered with a change, which its value does not follow yet; and whether such an offer was passed
    /// over.
    is_news: bool,
    missed_news: bool,
    /// Marginal utility and elasticity as offered; whether the sender knew what completions are worth.
    marginal: f64,
    elasticity: f64,
    knows: bool,
    answer: Answer,
    pub(super) ledger: Ledger,
}

impl Incoming {
    /// A sender that does not know yet what completions are worth will add that.
    fn learn(&mut self, alpha: f64, worth: f64) {
        if !std::mem::replace(&mut self.knows, true) {
            let marginal = self.marginal + worth;
            self.elasticity = (self.elasticity * self.marginal + 3.0 * worth) / marginal;
            self.marginal = marginal;
        }
        self.answer = Answer::of_elasticity(alpha, self.elasticity);
    }

    /// What it would use if the price of completions rose.
    fn at_rise(&self, rise: f64) -> f64 {
        self.offered * self.answer.at(1.0 + rise / self.marginal).0
    }

    /// What it may use now, of what it asked for.
    pub(super) fn in_use(&self) -> f64 {
        self.offered.min(self.ledger.granted())
    }

    /// Has the value that was offered, lowered by a rise of the price.
    fn follow(&mut self, rise: f64) {
        self.value = self.at_rise(rise);
        (self.fresh, self.is_news) = (false, false);
    }

    fn relaxed(&self) -> f64 {
        if self.fresh { step::relax(self.offered, self.value) } else { self.value }
    }
}

/// What is known of the offers of a host: whether they know the last answers, and whether the host fell back or has another
/// problem than before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) knows: bool,
    pub(super) alone: bool,
    pub(super) changes: bool,
}

/// An application that completes here.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiving {
    /// 0 before the first.
    z: f64,
    price: f64,
    /// The least marginal utility of those who send to it.
    marginal: f64,
    floor: f64,
    curvature: f64,
    edges: u32,
    sums: Receiver<f64>,
    moved: f64,
}

impl Receiving {
    /// Completes what its edges add up to, at the price that belongs to it.
    fn begin(&mut self, beta: f64, linear: f64) {
        self.z = self.sums.sum.max(1e-12);
        self.floor = CLIP * self.z;
        self.price = linear - completion_marginal(beta, self.z);
    }

    /// What a completion costs who sends it.
    pub(super) const fn price(&self) -> f64 {
        self.price
    }
}

/// Newton steps for a rise at most.
const MOST_STEPS: usize = 40;
/// How near a load must come to the capacity.
const NEAR: f64 = 1e-9;
/// What is heard of an offer, in capacities. More than one, or the only sender would never hear that it offers too much.
pub(super) const MOST_OFFERED: f64 = 2.0;
/// Beside the marginal utility of those who pay it, such a price is nothing.
const NOTHING: f64 = 1e-6;
/// How near grants must be to what they should be for a host to be still.
const SETTLED: f64 = 1e-3;

impl Host {
    /// Penalties are renewed from here.
    pub(super) fn begin_receiving(&mut self) {
        self.renewals_receiving = RENEWALS;
        self.receiving.values_mut().for_each(|receiving| receiving.floor = CLIP * receiving.z);
        self.prices.restart();
        self.rounds_before = self.counts.rounds;
        self.stir();
    }

    pub(super) fn incoming_take(&mut self, now: u64, from: u32, heard: Heard, offers: &[Offer]) {
        let Heard { knows, alone, changes } = heard;
        let steps = knows && !alone;
        let departed = |key: &(u32, u32, u32)| {
            let ends = (key.1, key.2);
            offers.binary_search_by_key(&ends, |offer| (offer.from, offer.to)).is_err()
        };
        let known = self.incoming.range((from, 0, 0)..=(from, u32::MAX, u32::MAX));
        let gone: Vec<_> = known.map(|edge| *edge.0).filter(departed).collect();
        for key in gone {
            self.incoming.remove(&key);
        }
        // A former life of this host may have granted what is held still.
        let quiet = now < self.quiet_until;
        let most = self.config.completion_capacity;
        for offer in offers {
            let offered = f64::from(offer.value).min(MOST_OFFERED * most);
            let key = (from, offer.from, offer.to);
            if !knows
                && self.prices.is_following()
                && let Some(edge) = self.incoming.get_mut(&key)
            {
                // It was lowered already.
                edge.missed_news |= changes;
                continue;
            }
            let edge = self.incoming.entry(key).or_insert_with(|| {
                let held = f64::from(offer.held);
                Incoming {
                    value: offered,
                    inverse: f64::from(offer.inverse),
                    offered,
                    fresh: false,
                    carried: 0,
                    is_news: true,
                    missed_news: false,
                    marginal: 0.0,
                    elasticity: 1.0,
                    knows: false,
                    answer: Answer::default(),
                    ledger: if quiet { Ledger::held(held) } else { Ledger::default() },
                }
            });
            let changes = changes || std::mem::take(&mut edge.missed_news);
            edge.is_news |= changes && is_far(edge.value, offered);
            edge.offered = offered;
            edge.marginal = f64::from(offer.marginal);
            edge.elasticity = f64::from(offer.elasticity);
            edge.knows = offer.held > 0.0;
            // For the steps nothing came.
            edge.fresh |= steps;
            if steps {
                edge.inverse = f64::from(offer.inverse);
            }
        }
    }

    pub(super) fn answers_header(&mut self, now: u64, to: u32, seen: u64) -> Header {
        let heard = self.sources.get(&to).map_or(0, |source| source.incarnation);
        Header {
            incarnation: self.config.incarnation,
            heard,
            change: self.change,
            sequence: self.next_sequence(now),
            seen,
            rise: narrow(self.rise),
            still: self.is_still(),
            round: self.collecting.before(),
            ..Header::default()
        }
    }

    pub(super) fn deliver(&mut self, now: u64, to: u32, header: Header, answers: Vec<Answered>) {
        if to == self.config.host {
            self.take_answers(now, to, header, &answers);
        } else {
            let bytes = Message::Answers(header, answers).encode();
            self.outputs.push_back(Output::Send { to, bytes });
        }
    }

    /// Moves the completions, prices and edge values, and answers every sender.
    pub(super) fn answer(&mut self, now: u64) {
        self.answer_at = None;
        self.close_window(now);
        self.gather();
        self.find_rise();
        let mut rise = self.rise;
        if self.prices.next_heard() == Stage::Follow {
            self.follow_offers();
            rise = 0.0;
        } else {
            self.follow_news();
            if !self.guard.fallen && !self.incoming.is_empty() {
                self.step_completions();
            }
        }
        self.renew_curvatures();
        if self.targets.is_empty() {
            let calm = self.relative_receiving <= CALM && self.settled;
            self.calm = if calm { self.calm + 1 } else { 0 };
        } else if self.relative_receiving > CALM && !self.guard.fallen {
            // Prices that move are to be heard of, whether or not rates here do.
            self.calm = 0;
        }
        let sequence = self.next_sequence(now);
        self.grant(now, sequence, rise);
        self.collecting = self.collecting.next();
        self.reply(now, sequence);
    }

    /// Counts the edges of each application; forgets those without.
    fn gather(&mut self) {
        self.learn();
        self.receiving.values_mut().for_each(|receiving| receiving.edges = 0);
        for (key, edge) in &self.incoming {
            let receiving = self.receiving.entry(key.2).or_default();
            let least = if receiving.edges == 0 { f64::INFINITY } else { receiving.marginal };
            receiving.marginal = least.min(edge.marginal);
            receiving.edges += 1;
        }
        self.receiving.retain(|_, receiving| receiving.edges > 0);
    }

    /// Takes in what completions are worth to those who offered, at what they offered.
    fn learn(&mut self) {
        let mut loads: BTreeMap<u32, f64> = BTreeMap::new();
        for (key, edge) in &self.incoming {
            *loads.entry(key.2).or_default() += edge.offered;
        }
        let (alpha, beta) = (self.config.alpha, self.config.beta);
        for (key, edge) in &mut self.incoming {
            edge.learn(alpha, completion_marginal(beta, loads[&key.2].max(1e-12)));
        }
    }

    /// The least rise of the price at which what was offered fits, if every sender answers by itself.
    fn find_rise(&mut self) {
        let capacity = self.config.completion_capacity;
        let bend = self.config.alpha.min(3.0);
        self.rise = 0.0;
        for _ in 0..MOST_STEPS {
            let (mut load, mut slope) = (0.0, 0.0);
            for edge in self.incoming.values() {
                let (factor, exponent) = edge.answer.at(1.0 + self.rise / edge.marginal);
                load += edge.offered * factor;
                slope -= edge.offered * factor * exponent / (edge.marginal + self.rise);
            }
            let step = rise_step(load, slope, capacity, bend);
            if load <= capacity * (1.0 + NEAR) || !(step > 0.0 && step.is_finite()) {
                break;
            }
            self.rise += step;
        }
    }

    /// Prices and edge values as they belong to what was offered, lowered until it fits.
    fn follow_offers(&mut self) {
        self.completing.linear += self.rise;
        for edge in self.incoming.values_mut() {
            edge.follow(self.rise);
            // Until it is offered again.
            edge.offered = edge.value;
            edge.marginal += self.rise;
        }
        self.add_up(|edge| edge.value);
        self.receiving.values_mut().for_each(|receiving| {
            receiving.begin(self.config.beta, self.completing.linear);
        });
        self.relative_receiving = f64::INFINITY;
    }

    /// The same, only for what came or jumped with a change. Its penalty is of what it was before: beside such a rate it
    /// would move the price without measure. Where edges add up to much more or less since, prices begin anew.
    fn follow_news(&mut self) {
        let mut jumped = BTreeSet::new();
        for (key, edge) in self.incoming.iter_mut().filter(|(_, edge)| edge.is_news) {
            edge.follow(self.rise);
            jumped.insert(key.2);
        }
        self.add_up(|edge| edge.value);
        let price = self.completing.linear + self.rise;
        for (number, receiving) in &mut self.receiving {
            if jumped.contains(number) && is_far(receiving.z, receiving.sums.sum) {
                receiving.begin(self.config.beta, price);
            }
        }
    }

    /// Adds up what each application has by its edges, and their inverse penalties.
    fn add_up(&mut self, of: fn(&Incoming) -> f64) {
        self.receiving.values_mut().for_each(|receiving| receiving.sums = Receiver::default());
        for (key, edge) in &self.incoming {
            if let Some(receiving) = self.receiving.get_mut(&key.2) {
                receiving.sums.add(of(edge), edge.inverse);
            }
        }
    }

    /// The receiver's step of the solver.
    fn step_completions(&mut self) {
        self.add_up(Incoming::relaxed);
        let count = self.receiving.len();
        let mut scratch = Scratch::<f64>::new(count);
        let mut z = Vec::with_capacity(count);
        for (at, receiving) in self.receiving.values().enumerate() {
            scratch.a[at] = 1.0 / receiving.sums.inverse;
            let sum = receiving.sums.sum;
            scratch.b[at] = step::completion_slope(scratch.a[at], sum, receiving.price);
            z.push(receiving.z);
        }
        let bounds = Bounds {
            weights: &[2.0 * self.config.beta],
            cone: None,
            limits: None,
            capacity: self.config.completion_capacity,
            at_least: false,
        };
        let mut price: Price = self.completing;
        step::move_host(COMPLETIONS, &bounds, &mut scratch, &mut z, &mut price);
        let good = |z: &f64| *z > 0.0 && z.is_finite();
        if price.linear.is_finite() && z.iter().all(good) {
            self.completing = price;
            self.settle(&z);
        }
    }

    /// Moves prices after completions, and edge values after prices.
    fn settle(&mut self, z: &[f64]) {
        let (mut gap, mut turn, mut size, mut cost) = (0.0, 0.0, 0.0, 0.0);
        for (receiving, z) in self.receiving.values_mut().zip(z) {
            let penalty = 1.0 / receiving.sums.inverse;
            receiving.moved = step::move_of_price(penalty, receiving.sums.sum, *z);
            receiving.price += receiving.moved;
            gap += (receiving.sums.sum - z).powi(2);
            turn += (penalty * (z - receiving.z)).powi(2);
            size += z * z;
            // What moves a price that is nothing beside what rates are worth is rounding.
            cost += receiving.price.abs().max(NOTHING * receiving.marginal).powi(2);
            receiving.z = *z;
        }
        for (key, edge) in &mut self.incoming {
            if let Some(receiving) = self.receiving.get(&key.2) {
                edge.value = edge.relaxed() - receiving.moved * edge.inverse;
            }
            edge.fresh = false;
        }
        let relative = |part: f64, whole: f64| part.sqrt() / whole.sqrt().max(1e-30);
        self.relative_receiving = relative(gap, size).max(relative(turn, cost));
        self.guard.note(self.relative_receiving);
    }

    fn renew_curvatures(&mut self) {
        let renews = self.renewals_receiving > 0;
        self.renewals_receiving = self.renewals_receiving.saturating_sub(1);
        let factor = 1.0 / (6.0 * self.config.beta);
        for receiving in self.receiving.values_mut() {
            let curvature = 1.0 / step::completion_flatness(factor, receiving.z, receiving.floor);
            if renews || is_far(receiving.curvature, curvature) {
                receiving.curvature = curvature;
            }
        }
    }

    /// Grants what fits beside everything that may still be in use: shares that are lowered count
    /// until their senders confirm it.
    fn grant(&mut self, now: u64, sequence: u64, rise: f64) {
        let capacity = self.config.completion_capacity * (1.0 - 1e-12);
        let quiet = now < self.quiet_until;
        let counted: f64 = self.incoming.values().map(|edge| edge.ledger.counted()).sum();
        let use_of = |edge: &Incoming| {
            if quiet { edge.ledger.counted() } else { edge.at_rise(rise) }
        };
        let sum: f64 = self.incoming.values().map(use_of).sum();
        let scale = (capacity / sum.max(1e-30)).min(1.0);
        let wanted = |edge: &Incoming| use_of(edge) * scale;
        let raise = |edge: &Incoming| (wanted(edge) - edge.ledger.counted()).max(0.0);
        let raises: f64 = self.incoming.values().map(raise).sum();
        let free = (capacity - counted).max(0.0);
        let part = if raises > 0.0 { (free / raises).min(1.0) } else { 0.0 };
        self.settled = !quiet && raises <= free + SETTLED * capacity;
        for edge in self.incoming.values_mut() {
            let most = edge.ledger.counted() + raise(edge) * part;
            let granted = f64::from(narrow_down(wanted(edge).min(most)));
            edge.ledger.grant(sequence, granted);
            self.settled &= edge.ledger.is_confirmed() || raises <= SETTLED * capacity;
        }
    }

    /// What a host is told of its edges.
    fn answers_to(&self, host: u32) -> Vec<Answered> {
        let beta = self.config.beta;
        let edges = self.incoming.range((host, 0, 0)..=(host, u32::MAX, u32::MAX));
        let answer = |(&(_, from, to), edge): (&(u32, u32, u32), &Incoming)| {
            let receiving = self.receiving.get(&to)?;
            Some(Answered {
                from,
                to,
                price: narrow(receiving.price),
                value: narrow(edge.value),
                curvature: narrow(receiving.curvature),
                worth: narrow(completion_marginal(beta, receiving.z)),
                edges: receiving.edges,
                grant: narrow_down(edge.ledger.granted()),
            })
        };
        edges.filter_map(answer).collect()
    }

    /// Tells a host again what it was told last.
    pub(super) fn reply_to(&mut self, now: u64, host: u32, seen: u64) {
        let sequence = self.next_sequence(now);
        for (_, edge) in self.incoming.range_mut((host, 0, 0)..=(host, u32::MAX, u32::MAX)) {
            let granted = edge.ledger.granted();
            edge.ledger.grant(sequence, granted);
        }
        self.note_answered(host, sequence);
        let header = Header { sequence, ..self.answers_header(now, host, seen) };
        let answers = self.answers_to(host);
        self.deliver(now, host, header, answers);
    }

    /// Answers those who offered, and everybody while something changes.
    fn reply(&mut self, now: u64, sequence: u64) {
        let hosts: Vec<u32> = self.sources.keys().copied().collect();
        for host in hosts {
            let Some(seen) = self.open_window(host, sequence) else { continue };
            let header = Header { sequence, ..self.answers_header(now, host, seen) };
            let entries = self.answers_to(host);
            if entries.is_empty() {
                // It has left, and is told that this is known.
                self.note_left(now, host);
            }
            self.deliver(now, host, header, entries);
            if host == self.config.host {
                // Without a message; what it did not take it does not hold.
                let taken = self.targets.get(&host).map_or(sequence, |target| target.taken);
                self.confirm(host, taken);
            }
        }
    }
}
