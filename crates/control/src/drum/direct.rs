//! The exact optimum of one host whose completions are its own: two prices, no messages.
use super::fill::next_price;
use super::utility::{Power, Three, marginal, rate_at, with_power};

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
        with_power!(self.alpha, power => self.pass_by(power, prices, x))
    }

    fn pass_by<P: Power>(&self, power: P, prices: Prices, x: &mut [f64]) -> Sums {
        // The error left is the square of the last step.
        let enough = (0.01 * self.tolerance).max(1e-15);
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

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
