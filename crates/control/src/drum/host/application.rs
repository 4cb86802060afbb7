//! An application that sends from this host, and what it sends to.
use super::MOST_MISSES;
use crate::drum::answer::Answer;
use crate::drum::step::{self, KAPPA, Sender, Told};
use crate::drum::utility::{marginal, with_power};
use std::collections::BTreeMap;

/// How far a rate may be from its answer to prices, as a logarithm, and how near it is found.
const MOST_LOG: f64 = 16.0;
const HALVINGS: usize = 40;

/// How far penalties, curvatures and edge values may be from what they should be, as a factor.
const FAR: f64 = 4.0;

/// Whether one is so far from what it should be that steps would take too long.
pub(super) fn is_far(is: f64, should: f64) -> bool {
    should > FAR * is || is > FAR * should
}

/// A host that applications here send to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) incarnation: u32,
    /// Sequence of its newest answers with entries: the grants that are held.
    pub(super) taken: u64,
    /// Its change as of these.
    pub(super) change: u32,
    /// When that was sent which it heard last: its grants hold for a lease from then.
    pub(super) acknowledged: u64,
    /// Sequence of the newest offers that it answered.
    pub(super) heard: u64,
    /// Whether it answered what was sent last, and how often in a row it did not.
    pub(super) answered: bool,
    pub(super) misses: u32,
    /// Whether nothing is granted by it until it is heard again.
    pub(super) lapsed: bool,
    /// Whether it was offered nothing, since nobody sends there any more.
    pub(super) leaves: bool,
    pub(super) rise: f64,
}

impl Target {
    pub(super) fn new(now: u64) -> Self {
        Self {
            incarnation: 0,
            taken: 0,
            change: 0,
            acknowledged: now,
            heard: 0,
            answered: true,
            misses: 0,
            lapsed: false,
            leaves: false,
            rise: 0.0,
        }
    }

    pub(super) fn is_expected(&self) -> bool {
        !self.lapsed && self.misses <= MOST_MISSES
    }
}

/// One destination of an application.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) host: u32,
    pub(super) application: u32,
    pub(super) completions: f64,
    pub(super) told: Option<Told<f64>>,
    pub(super) worth: f64,
    pub(super) grant: f64,
    pub(super) inverse: f64,
    /// First offers with it: answers to earlier ones are about a former edge.
    pub(super) since: u64,
}

/// An application that sends.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) application: u32,
    pub(super) weight: f64,
    pub(super) limit: f64,
    pub(super) edges: Vec<Edge>,
    pub(super) x: f64,
    pub(super) floor: f64,
    /// The share that this host alone would give.
    pub(super) alone: f64,
    /// What it may take now, but for grants.
    pub(super) decided: f64,
}

impl Sending {
    pub(super) fn go_alone(&mut self) {
        self.x = self.alone;
    }

    pub(super) fn sum(&self) -> f64 {
        self.edges.iter().map(|edge| edge.completions).sum()
    }

    /// Whether all hosts that it sends to are there.
    pub(super) fn takes_part(&self, targets: &BTreeMap<u32, Target>) -> bool {
        let there = |edge: &Edge| targets.get(&edge.host).is_some_and(|at| !at.lapsed);
        self.edges.iter().all(there)
    }

    /// Marginal utility of the rate, its elasticity, and its answer to a price.
    pub(super) fn marginal(&self, alpha: f64) -> (f64, f64, Answer) {
        let rate = self.weight * marginal(alpha, self.x);
        let completion: f64 = self.edges.iter().map(|edge| edge.completions * edge.worth).sum();
        let elasticity = (alpha * rate + 3.0 * completion) / (rate + completion);
        (rate + completion, elasticity, Answer::new(alpha, rate, completion))
    }

    /// The rate that answers to the prices it was told, and to one of sending, as its completions are worth less the
    /// more there are; `None` where it was not told all, or nothing has a price.
    pub(super) fn answer_prices(&self, alpha: f64, send: f64) -> Option<f64> {
        let price_of = |edge: &Edge| Some(edge.completions * (edge.told?.price + edge.worth));
        let price = send + self.edges.iter().map(price_of).sum::<Option<f64>>()?;
        if !(price > 0.0 && price.is_finite()) {
            return None;
        }
        let completion: f64 = self.edges.iter().map(|edge| edge.completions * edge.worth).sum();
        let (mut low, mut high) = (-MOST_LOG, MOST_LOG);
        for _ in 0..HALVINGS {
            let log: f64 = 0.5 * (low + high);
            let rate = self.weight * marginal(alpha, self.x * log.exp());
            let is_worth = rate + completion * (-3.0 * log).exp() > price;
            *(if is_worth { &mut low } else { &mut high }) = log;
        }
        Some(self.x * low.exp())
    }

    /// How far receivers' edge values are from those of the rate, as a fraction: it has not come to rest while the newest
    /// that it was told answers another rate.
    pub(super) fn disagreement(&self) -> f64 {
        let of = |edge: &Edge| {
            let value = edge.completions * self.x;
            edge.told.map_or(0.0, |told| (told.value - value).abs() / value.max(1e-30))
        };
        self.edges.iter().map(of).fold(0.0, f64::max)
    }

    /// Takes completions to be worth less where there are more of them than at the rate of before, at which their worth was
    /// told: receivers would lower all others for the sake of what is dear only while it is rare.
    pub(super) fn expect_worth(&mut self, before: f64) {
        let factor = (before / self.x).min(1.0).powi(3);
        self.edges.iter_mut().for_each(|edge| edge.worth *= factor);
    }

    /// Whether it was told all its prices.
    pub(super) fn is_told(&self) -> bool {
        self.edges.iter().all(|edge| edge.told.is_some())
    }

    /// Penalties from the curvatures of both ends, as far as they are to be renewed: also those that are far from what they
    /// should be. With one that is much too stiff a rate would never come to what it is due.
    pub(super) fn stiffen(&mut self, alpha: f64, renews: bool) {
        let shared = KAPPA / self.sum();
        let flat = 1.0 / (shared * alpha * self.weight);
        let floor = self.floor.max(1e-12);
        let flatness = with_power!(alpha, power => step::rate_flatness(power, flat, self.x, floor));
        let rate = 1.0 / flatness;
        let part = |edge: &Edge| {
            let curvature = edge.told.map_or(0.0, |told| told.curvature);
            shared * edge.completions * edge.completions * curvature
        };
        let all = rate + self.edges.iter().map(part).sum::<f64>();
        for edge in &mut self.edges {
            let stiffness = step::stiffness_elsewhere(rate, all, part(edge));
            let flatness = edge.told.map_or(f64::INFINITY, |told| told.flatness);
            let inverse = step::inverse_penalty(stiffness, edge.completions, flatness);
            if renews || is_far(edge.inverse, inverse) {
                edge.inverse = inverse;
            }
        }
    }

    /// The coefficients of its minimisation. `guess` is the price at which the rate would stay, for
    /// edges that were not told one.
    pub(super) fn coefficients(&self, guess: f64) -> Sender<f64> {
        let mut sums = Sender::default();
        for edge in &self.edges {
            let value = edge.completions * self.x;
            let unknown = Told { price: guess, value, flatness: f64::INFINITY, curvature: 0.0 };
            sums.add(1.0 / edge.inverse, edge.completions, edge.told.unwrap_or(unknown));
        }
        sums
    }
}
