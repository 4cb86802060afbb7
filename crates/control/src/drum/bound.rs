//! What no allocation can exceed, from prices alone (weak duality).
use super::fill::{Price, next_price};
use super::flow::{Flow, add_worth};
use super::model::{ConeRow, Model};
use super::parts::{Arithmetic, each, take, widest};
use super::problem::Coupling;
use super::utility::{Power, rate_at, utility, with_power};

const MOST_PASSES: usize = 200;
/// How near the capacity must be met: the bound's error is the square of that.
const NEAR: f64 = 1e-8;

/// Buffers of the bound; nothing is allocated once they are made.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    /// Over senders: what completions cost them.
    costs: Vec<f64>,
    /// Over receivers: prices of their completions.
    worth: Vec<f64>,
    /// Over hosts: their parts.
    totals: Vec<f64>,
    hands: Vec<Hand>,
}

/// Buffers of one thread, over what a host has.
#[derive(Clone, Debug)]
struct Hand {
    prices: Vec<f64>,
    shares: Vec<f64>,
}

/// One host's part: `min over price >= 0 of price * capacity + sum max w U(x) - (cost + price * share) x`.
pub(super) struct Part<'a> {
    pub(super) alpha: f64,
    /// One for each element, or one for all.
    pub(super) weights: &'a [f64],
    pub(super) costs: &'a [f64],
    pub(super) shares: &'a [f64],
    pub(super) limits: Option<&'a [f64]>,
    pub(super) capacity: f64,
}

#[derive(Default)]
struct Sums {
    used: f64,
    slope: f64,
    finite: bool,
}

impl Part<'_> {
    fn weight(&self, at: usize) -> f64 {
        if self.weights.len() == 1 { self.weights[0] } else { self.weights[at] }
    }

    fn cost(&self, at: usize, price: f64) -> f64 {
        self.costs[at] + price * self.shares[at]
    }

    /// The rate that is best at a cost; infinite if there is none.
    fn free(&self, at: usize, cost: f64) -> f64 {
        if cost > 0.0 { rate_at(self.alpha, cost / self.weight(at)) } else { f64::INFINITY }
    }

    fn limit(&self, at: usize) -> f64 {
        self.limits.map_or(f64::INFINITY, |limits| limits[at])
    }

    fn pass(&self, price: f64) -> Sums {
        if self.limits.is_some() || !self.weights.iter().all(|weight| *weight > 0.0) {
            return self.pass_in_turn(price);
        }
        let mut sums = Sums::default();
        with_power!(self.alpha, power => widest(Pass { part: self, power, price, sums: &mut sums }));
        sums
    }

    /// With limits, or where some have no utility.
    fn pass_in_turn(&self, price: f64) -> Sums {
        let mut sums = Sums { finite: true, ..Sums::default() };
        for at in 0..self.costs.len() {
            let (cost, share) = (self.cost(at, price), self.shares[at]);
            if self.weight(at) == 0.0 {
                // A rate without utility costs nothing at 0, or has no bound.
                sums.finite &= cost >= 0.0;
                continue;
            }
            let (free, limit) = (self.free(at, cost), self.limit(at));
            let x = free.min(limit);
            if x == f64::INFINITY {
                sums.finite = false;
                continue;
            }
            sums.used += share * x;
            if free < limit {
                sums.slope -= share * share * x / (self.alpha * cost);
            }
        }
        sums
    }

    /// What is least at a price where every term is finite.
    fn value(&self, price: f64) -> f64 {
        let value = |at| {
            let (cost, weight) = (self.cost(at, price), self.weight(at));
            if weight == 0.0 {
                return 0.0;
            }
            let x = self.free(at, cost).min(self.limit(at));
            weight * utility(self.alpha, x) - cost * x
        };
        price * self.capacity + (0..self.costs.len()).map(value).sum::<f64>()
    }

    /// What is least, from a price where the search begins; nothing if no value is finite.
    pub(super) fn best(&self, start: f64) -> Option<f64> {
        if self.costs.is_empty() {
            return Some(0.0);
        }
        self.price(start).map(|price| self.value(price))
    }

    /// The bracket of the price: below `low` a term has no bound, at `high` the capacity is not filled.
    fn bracket(&self) -> (f64, f64) {
        let (mut low, mut high): (f64, f64) = (0.0, 0.0);
        for at in 0..self.costs.len() {
            let (weight, share) = (self.weight(at), self.shares[at]);
            if self.limits.is_none() {
                low = low.max(-self.costs[at] / share);
            }
            if weight > 0.0 {
                let x = self.capacity / (self.costs.len() as f64 * share);
                let gain = weight * super::utility::marginal(self.alpha, x);
                high = high.max((gain - self.costs[at]) / share);
            }
        }
        let high = (high * (1.0 + 1e-12)).max(low * (1.0 + 1e-9) + 1e-300);
        (low, high)
    }

    /// Sets rates to what is best, and the price to that of the capacity then.
    fn set_best(&self, x: &mut [f64], price: &mut Price) {
        let Some(best) = self.price(price.linear) else { return };
        price.linear = best;
        for (at, x) in x.iter_mut().enumerate() {
            *x = self.free(at, self.cost(at, best)).min(self.limit(at));
        }
    }

    /// Returns the price at which the value is least, as near as it was found; `None` where no value is
    /// finite.
    fn price(&self, start: f64) -> Option<f64> {
        let (least, mut high) = self.bracket();
        let mut low = least;
        let mut price = if start > low && start <= high { start } else { 0.5 * (low + high) };
        let mut last = None;
        for _ in 0..MOST_PASSES {
            let sums = self.pass(price);
            if sums.finite {
                last = Some(price);
            }
            let over = if sums.finite { sums.used - self.capacity } else { f64::INFINITY };
            if over.abs() <= NEAR * self.capacity || (price <= 0.0 && over <= 0.0) {
                break;
            }
            if over > 0.0 {
                low = price
            } else {
                high = price
            }
            if high - low <= 4e-16 * high {
                break;
            }
            price = if low == 0.0 && least == 0.0 {
                next_price(price, over, sums.slope, low, high)
            } else {
                let newton = price - over / sums.slope;
                if newton > low && newton < high { newton } else { 0.5 * (low + high) }
            };
        }
        last
    }
}

/// Elements that are added side by side.
const LANES: usize = 8;

/// What all take at a price, each of them having a utility and no limit.
struct Pass<'a, P> {
    part: &'a Part<'a>,
    power: P,
    price: f64,
    sums: &'a mut Sums,
}

/// Sums over every eighth element, and the least cost.
struct Lanes {
    used: [f64; LANES],
    fall: [f64; LANES],
    least: [f64; LANES],
}

impl<P: Power> Pass<'_, P> {
    #[inline(always)]
    fn add(&self, lanes: &mut Lanes, weights: &[f64; LANES], costs: &[f64], shares: &[f64]) {
        for lane in 0..costs.len().min(LANES) {
            let share = shares[lane];
            let cost = costs[lane] + self.price * share;
            let used = share * self.power.rate_of(weights[lane] / cost);
            lanes.used[lane] += used;
            lanes.fall[lane] += share * used / cost;
            lanes.least[lane] = if cost < lanes.least[lane] { cost } else { lanes.least[lane] };
        }
    }
}

impl<P: Power> Arithmetic for Pass<'_, P> {
    #[inline(always)]
    fn compute(self) {
        let Part { weights, costs, shares, .. } = *self.part;
        let mut lanes = Lanes { used: [0.0; LANES], fall: [0.0; LANES], least: [f64::MAX; LANES] };
        let ((costs, costs_left), (shares, shares_left)) =
            (costs.as_chunks::<LANES>(), shares.as_chunks::<LANES>());
        let all = costs.iter().zip(shares);
        let mut last = [weights.first().copied().unwrap_or(1.0); LANES];
        if weights.len() == 1 {
            all.for_each(|(costs, shares)| self.add(&mut lanes, &last, costs, shares));
        } else {
            let (weights, weights_left) = weights.as_chunks::<LANES>();
            for ((costs, shares), weights) in all.zip(weights) {
                self.add(&mut lanes, weights, costs, shares);
            }
            last[..weights_left.len()].copy_from_slice(weights_left);
        }
        self.add(&mut lanes, &last, costs_left, shares_left);
        let least = lanes.least.into_iter().fold(f64::MAX, f64::min);
        *self.sums = Sums {
            used: lanes.used.iter().sum(),
            slope: -lanes.fall.iter().sum::<f64>() / self.part.alpha,
            finite: least > 0.0,
        };
    }
}

impl Bound {
    pub(super) fn new(model: &Model) -> Self {
        let most = model.layout.widest();
        let costs = vec![0.0; model.layout.senders.len()];
        let worth = vec![0.0; model.layout.receivers.len()];
        let hand = Hand { prices: vec![0.0; most], shares: vec![0.0; most] };
        Self {
            costs,
            worth,
            totals: vec![0.0; model.layout.hosts],
            hands: vec![hand; model.layout.parts.len()],
        }
    }

    /// Returns a bound of the scaled objective at prices `price` of the receivers; infinite if these
    /// prices give none. `x`, `z` are where cones are cut, `sent` and `completed` where the search
    /// for the hosts' prices begins: all may be anything.
    pub(super) fn bound(
        &mut self,
        model: &Model,
        flow: &mut Flow,
        price: impl Fn(usize) -> f64,
        x: impl Fn(usize) -> f64 + Sync,
        z: impl Fn(usize) -> f64 + Sync,
        start: impl Fn(usize) -> (f64, f64) + Sync,
    ) -> f64 {
        let price = |to: usize| {
            let price = price(to);
            if model.coupling == Coupling::AtLeast { price.max(0.0) } else { price }
        };
        let layout = &model.layout;
        self.gather_costs(model, flow, price);
        let mut totals = &mut self.totals[..];
        let hands =
            layout.parts.iter().zip(&mut self.hands).map(|(part, hand)| {
                (part.hosts.clone(), take(&mut totals, part.hosts.len()), hand)
            });
        let (costs, worth) = (&self.costs, &self.worth);
        each(hands, |(hosts, totals, hand)| {
            for (host, total) in hosts.zip(totals) {
                let range = layout.sent_by(host);
                hand.prices[..range.len()].copy_from_slice(&costs[range.clone()]);
                hand.cut(model.send_row(host), range.len(), |at| x(range.start + at));
                let weights = &model.weights[range.clone()];
                let limits = model.limits.as_ref().map(|limits| &limits[range.clone()]);
                let capacity = model.send_capacity[host];
                let (sent, completed) = start(host);
                *total = hand.part(model.alpha, weights, limits, capacity, range.len(), sent);
                let range = layout.received_by(host);
                for (price, worth) in hand.prices.iter_mut().zip(&worth[range.clone()]) {
                    *price = -worth;
                }
                hand.cut(model.completion_row(host), range.len(), |at| z(range.start + at));
                let weights = [2.0 * model.beta[host]];
                let capacity = model.completion_capacity[host];
                *total += hand.part(3.0, &weights, None, capacity, range.len(), completed);
            }
        });
        let total: f64 = self.totals.iter().sum();
        if total.is_nan() { f64::INFINITY } else { total }
    }

    fn gather_costs(&mut self, model: &Model, flow: &mut Flow, price: impl Fn(usize) -> f64) {
        self.worth.iter_mut().enumerate().for_each(|(to, worth)| *worth = price(to));
        flow.fold(model, &self.worth, 0.0, add_worth);
        flow.copy_senders(&model.layout, &mut self.costs);
    }

    /// Sets every host's rates to what is best for it at the prices of completions, and the prices of
    /// what it sends to those that go with it. `x` and `sent` are where the search begins.
    pub(super) fn answer(
        &mut self,
        model: &Model,
        flow: &mut Flow,
        price: impl Fn(usize) -> f64,
        x: &mut [f64],
        sent: &mut [Price],
    ) {
        self.gather_costs(model, flow, price);
        let hand = &mut self.hands[0];
        for (host, sent) in sent.iter_mut().enumerate().take(model.layout.hosts) {
            let range = model.layout.sent_by(host);
            let x = &mut x[range.clone()];
            hand.cut(model.send_row(host), range.len(), |at| x[at]);
            let part = Part {
                alpha: model.alpha,
                weights: &model.weights[range.clone()],
                costs: &self.costs[range.clone()],
                shares: &hand.shares[..range.len()],
                limits: model.limits.as_ref().map(|limits| &limits[range]),
                capacity: model.send_capacity[host],
            };
            part.set_best(x, sent);
        }
    }
}

impl Hand {
    fn part(
        &self,
        alpha: f64,
        weights: &[f64],
        limits: Option<&[f64]>,
        capacity: f64,
        count: usize,
        start: f64,
    ) -> f64 {
        let (costs, shares) = (&self.prices[..count], &self.shares[..count]);
        let part = Part { alpha, weights, costs, shares, limits, capacity };
        part.best(start).unwrap_or(f64::INFINITY)
    }

    /// Replaces a cone by its tangent.
    fn cut(&mut self, cone: Option<ConeRow<'_>>, count: usize, v: impl Fn(usize) -> f64) {
        let Some(cone) = cone else {
            self.shares[..count].fill(1.0);
            return;
        };
        let norm = cone.norm(&v);
        for at in 0..count {
            let share = cone.tangent(at, v(at), norm);
            self.shares[at] = if share.is_finite() { share } else { cone.reserved[at] };
        }
    }
}
