//! The exact optimum of one host whose completions are its own: two prices, no messages.
use super::fill::next_price;
use super::parts::{Arithmetic, widest};
use super::utility::{Power, Three, marginal, rate_at, with_power};
use std::ops::Range;

const MOST_PASSES: usize = 200;
const NARROW: f64 = 4e-16;
const STEPS: usize = 60;

/// One host: maximise `sum w U(x) - b / x^2` with `send . x` and `complete . x` within capacities.
#[derive(Clone, Debug)]
pub(super) struct HostProblem<'a> {
    pub(super) alpha: f64,
    pub(super) weights: &'a [f64],
    /// `beta / completions^2`.
    pub(super) beta: &'a [f64],
    /// What a unit takes of the first capacity.
    pub(super) send: &'a [f64],
    /// What a unit takes of the second.
    pub(super) complete: &'a [f64],
    pub(super) limits: Option<&'a [f64]>,
    pub(super) send_capacity: f64,
    pub(super) completion_capacity: f64,
    /// How near a capacity must be met, as a fraction of it.
    pub(super) tolerance: f64,
}

/// Prices of a host's two capacities.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Prices {
    pub(super) send: f64,
    pub(super) complete: f64,
}

/// What one pass over the applications finds.
#[derive(Default)]
struct Sums {
    used: [f64; 2],
    slopes: [f64; 3],
}

/// Returns the rate at which an application's marginal utility is `price`; `near` is where the search
/// begins, if it is a rate, and `enough` the last step as a fraction of the rate.
///
/// Newton from the left, where it soon is: the marginal utility is convex and falls.
fn response<P: Power>(
    power: P,
    (weight, beta): (f64, f64),
    price: f64,
    near: f64,
    enough: f64,
) -> f64 {
    if price <= 0.0 {
        return f64::INFINITY;
    }
    if beta == 0.0 {
        return if weight > 0.0 { rate_at(power.alpha(), price / weight) } else { 0.0 };
    }
    let mut x = near;
    if !(x > 0.0 && x.is_finite()) {
        x = if weight > 0.0 { rate_at(power.alpha(), price / weight) } else { 0.0 };
        x = x.max(rate_at(3.0, price / (2.0 * beta)));
    }
    for _ in 0..STEPS {
        let inverse = 1.0 / x;
        let rate = weight * power.of_inverse(inverse);
        let completion = 2.0 * beta * Three.of_inverse(inverse);
        let step = (rate + completion - price) / (power.alpha() * rate + 3.0 * completion);
        x += x * step.max(-0.9);
        if step.abs() <= enough || step.is_nan() {
            break;
        }
    }
    x
}

/// The rate at which a marginal utility is `price`, to the last digits.
pub(super) fn exact_response(alpha: f64, weight: f64, beta: f64, price: f64) -> f64 {
    with_power!(alpha, power => response(power, (weight, beta), price, 0.0, 1e-15))
}

impl HostProblem<'_> {
    fn pass(&self, prices: Prices, x: &mut [f64]) -> Sums {
        if self.limits.is_some() {
            return with_power!(self.alpha, power => self.pass_by(power, prices, x));
        }
        let mut sums = Sums::default();
        with_power!(self.alpha, power => {
            widest(Pass { problem: self, power, prices, x, sums: &mut sums });
        });
        sums
    }

    /// The error left in a rate is the square of the last step.
    fn enough(&self) -> f64 {
        (0.01 * self.tolerance).max(1e-15)
    }

    fn pass_by<P: Power>(&self, power: P, prices: Prices, x: &mut [f64]) -> Sums {
        let enough = self.enough();
        let mut sums = Sums::default();
        for (at, x) in x.iter_mut().enumerate() {
            let (weight, beta) = (self.weights[at], self.beta[at]);
            let (send, complete) = (self.send[at], self.complete[at]);
            let price = prices.send * send + prices.complete * complete;
            let value = response(power, (weight, beta), price, *x, enough);
            let limit = self.limits.map_or(f64::INFINITY, |limits| limits[at]);
            *x = value.min(limit);
            if value < limit {
                let inverse = 1.0 / value;
                let rate = power.alpha() * weight * power.of_inverse(inverse) * inverse;
                let square = inverse * inverse;
                let slope = 1.0 / (rate + 6.0 * beta * square * square);
                sums.slopes[0] += send * send * slope;
                sums.slopes[1] += send * complete * slope;
                sums.slopes[2] += complete * complete * slope;
            }
            sums.used[0] += send * *x;
            sums.used[1] += complete * *x;
        }
        sums
    }

    fn capacity(&self, which: usize) -> f64 {
        [self.send_capacity, self.completion_capacity][which]
    }

    /// A price of one capacity, the other being free, at which nobody takes more than an equal share.
    fn highest(&self, which: usize) -> f64 {
        let mut highest: f64 = 0.0;
        for at in 0..self.weights.len() {
            let share = [self.send, self.complete][which][at];
            if share > 0.0 {
                let x = self.capacity(which) / (self.weights.len() as f64 * share);
                let gain = self.weights[at] * marginal(self.alpha, x)
                    + 2.0 * self.beta[at] * marginal(3.0, x);
                highest = highest.max(gain / share);
            }
        }
        highest * (1.0 + 1e-12) + 1e-300
    }

    /// Finds one price, the other being given, at which its capacity is met.
    fn price(
        &self,
        which: usize,
        other: f64,
        start: f64,
        x: &mut [f64],
        passes: &mut usize,
    ) -> f64 {
        let (mut low, mut high) = (0.0, self.highest(which));
        let mut price = if start > 0.0 && start < high { start } else { 0.5 * high };
        let capacity = self.capacity(which);
        for _ in 0..MOST_PASSES {
            *passes += 1;
            let prices = if which == 0 {
                Prices { send: price, complete: other }
            } else {
                Prices { send: other, complete: price }
            };
            let sums = self.pass(prices, x);
            let over = sums.used[which] - capacity;
            if over.abs() <= self.tolerance * capacity || (price == 0.0 && over <= 0.0) {
                break;
            }
            if over > 0.0 {
                low = price
            } else {
                high = price
            }
            if high - low <= NARROW * high {
                break;
            }
            price = next_price(price, over, -sums.slopes[2 * which], low, high);
        }
        price
    }

    /// Sets `x` to the optimum; returns its prices and the passes that it took.
    pub(super) fn solve(&self, x: &mut [f64]) -> (Prices, usize) {
        let mut passes = 0;
        let fits =
            |used: f64, which: usize| used <= self.capacity(which) * (1.0 + 10.0 * self.tolerance);
        let free = self.pass(Prices::default(), x);
        if free.used.iter().enumerate().all(|(which, used)| fits(*used, which)) {
            return (Prices::default(), 1);
        }
        let send = self.price(0, 0.0, 0.0, x, &mut passes);
        let prices = Prices { send, complete: 0.0 };
        if fits(dot(self.complete, x), 1) {
            return (prices, passes);
        }
        let complete = self.price(1, 0.0, 0.0, x, &mut passes);
        if fits(dot(self.send, x), 0) {
            return (Prices { send: 0.0, complete }, passes);
        }
        (self.both(send, complete, x, &mut passes), passes)
    }

    /// Both capacities bind: Newton on the second price, the first following.
    fn both(&self, send: f64, complete: f64, x: &mut [f64], passes: &mut usize) -> Prices {
        let (mut low, mut high) = (0.0, complete);
        let mut prices = Prices { send: 0.5 * send, complete: 0.5 * complete };
        for _ in 0..MOST_PASSES {
            prices.send = self.price(0, prices.complete, prices.send, x, passes);
            let sums = self.pass(prices, x);
            *passes += 1;
            let over = sums.used[1] - self.completion_capacity;
            if over.abs() <= 2.0 * self.tolerance * self.completion_capacity {
                break;
            }
            if over > 0.0 {
                low = prices.complete
            } else {
                high = prices.complete
            }
            if high - low <= NARROW * high {
                break;
            }
            let slope = sums.slopes[2] - sums.slopes[1] * sums.slopes[1] / sums.slopes[0];
            let newton = prices.complete + over / slope;
            let inside = slope > 0.0 && newton > low && newton < high;
            prices.complete = if inside { newton } else { 0.5 * (low + high) };
        }
        prices
    }
}

/// Applications that are done side by side.
const LANES: usize = 8;

/// A pass where nobody has a limit.
struct Pass<'a, P> {
    problem: &'a HostProblem<'a>,
    power: P,
    prices: Prices,
    x: &'a mut [f64],
    sums: &'a mut Sums,
}

/// Applications side by side: what each has, and what its rate costs.
struct Lanes {
    weights: [f64; LANES],
    beta: [f64; LANES],
    prices: [f64; LANES],
}

impl Lanes {
    /// [`response`] of each, where all have a price and both utilities.
    #[inline(always)]
    fn respond<P: Power>(&self, power: P, x: &mut [f64; LANES], enough: f64) {
        let Self { weights, beta, prices } = self;
        for lane in 0..LANES {
            let rate = power.rate_of(weights[lane] / prices[lane]);
            let completion = Three.rate_of(2.0 * beta[lane] / prices[lane]);
            let start = if rate > completion { rate } else { completion };
            let is_rate = x[lane] > 0.0 && x[lane] < f64::INFINITY;
            x[lane] = if is_rate { x[lane] } else { start };
        }
        for _ in 0..STEPS {
            let mut steps = [0.0; LANES];
            for lane in 0..LANES {
                let inverse = 1.0 / x[lane];
                let rate = weights[lane] * power.of_inverse(inverse);
                let completion = 2.0 * beta[lane] * Three.of_inverse(inverse);
                let step =
                    (rate + completion - prices[lane]) / (power.alpha() * rate + 3.0 * completion);
                x[lane] += x[lane] * if step > -0.9 { step } else { -0.9 };
                steps[lane] = step.abs();
            }
            let most =
                steps.into_iter().fold(0.0, |most, step| if step > most { step } else { most });
            if most <= enough {
                break;
            }
        }
    }

    fn have_both(&self) -> bool {
        let all = self.weights.iter().chain(&self.beta).chain(&self.prices);
        all.fold(true, |all, value| all & (*value > 0.0))
    }
}

/// Takes up to [`LANES`] values, and `other` for those that are not there.
#[inline(always)]
fn pad(values: &[f64], other: f64) -> [f64; LANES] {
    let mut all = [other; LANES];
    all[..values.len()].copy_from_slice(values);
    all
}

impl<P: Power> Pass<'_, P> {
    /// Does the applications of one range, and adds what they use and how that falls.
    #[inline(always)]
    fn take(&mut self, range: Range<usize>, sums: &mut [[f64; LANES]; 5]) {
        let &HostProblem { weights, beta, send, complete, .. } = self.problem;
        let (send, complete) = (pad(&send[range.clone()], 0.0), pad(&complete[range.clone()], 0.0));
        let (weights, beta) = (pad(&weights[range.clone()], 1.0), pad(&beta[range.clone()], 1.0));
        let mut x = pad(&self.x[range.clone()], 1.0);
        let mut prices = [1.0; LANES];
        for lane in 0..range.len() {
            prices[lane] = self.prices.send * send[lane] + self.prices.complete * complete[lane];
        }
        let enough = self.problem.enough();
        let all = Lanes { weights, beta, prices };
        if all.have_both() {
            all.respond(self.power, &mut x, enough);
        } else {
            for (lane, x) in x.iter_mut().enumerate() {
                *x = response(self.power, (weights[lane], beta[lane]), prices[lane], *x, enough);
            }
        }
        self.x[range.clone()].copy_from_slice(&x[..range.len()]);
        for lane in 0..LANES {
            let (send, complete, x) = (send[lane], complete[lane], x[lane]);
            let inverse = 1.0 / x;
            let rate =
                self.power.alpha() * weights[lane] * self.power.of_inverse(inverse) * inverse;
            let square = inverse * inverse;
            let slope = 1.0 / (rate + 6.0 * beta[lane] * square * square);
            // Who pays nothing takes without bound, and does not answer.
            let slope = if x < f64::INFINITY { slope } else { 0.0 };
            sums[0][lane] += send * x;
            sums[1][lane] += complete * x;
            sums[2][lane] += send * send * slope;
            sums[3][lane] += send * complete * slope;
            sums[4][lane] += complete * complete * slope;
        }
    }
}

impl<P: Power> Arithmetic for Pass<'_, P> {
    #[inline(always)]
    fn compute(mut self) {
        let mut sums = [[0.0; LANES]; 5];
        let count = self.x.len();
        let whole = count - count % LANES;
        for at in (0..whole).step_by(LANES) {
            self.take(at..at + LANES, &mut sums);
        }
        if whole < count {
            self.take(whole..count, &mut sums);
        }
        let [sent, completed, slopes @ ..] = sums.map(|lanes| lanes.iter().sum::<f64>());
        *self.sums = Sums { used: [sent, completed], slopes };
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
