//! One host's step, in its safe form: rates at a common price that just fill a capacity.
//!
//! The price is found by Newton within a bracket, so that it ends on any input.
use super::model::ConeRow;
use super::root::{root, root_at_least};
use super::utility::Power;

const MOST_PASSES: usize = 120;
/// Below this a bracket has no numbers left in it.
const NARROW: f64 = 4e-16;

/// What one host minimises: `sum -w U(x) + a x^2 / 2 + b x` within its capacity.
pub(super) struct Row<'a> {
    /// One weight for each element, or one for all.
    pub(super) weights: &'a [f64],
    pub(super) a: &'a [f64],
    pub(super) b: &'a [f64],
    pub(super) cone: Option<ConeRow<'a>>,
    pub(super) limits: Option<&'a [f64]>,
    pub(super) capacity: f64,
    /// Whether completions may be left unused.
    pub(super) at_least: bool,
    /// How near the capacity must be met, as a fraction of it.
    pub(super) tolerance: f64,
}

/// The multipliers of a capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Price {
    /// Price of the capacity; 0 where it does not bind.
    pub(super) linear: f64,
    /// `linear / ||uncertain o x||`; 0 without preemption.
    pub(super) conic: f64,
}

#[derive(Default)]
struct Pass {
    use_of_capacity: f64,
    norm: f64,
    /// Derivative of the use in the linear price.
    slope: f64,
    /// Derivatives of `conic * norm - linear` in both prices, where there is a cone.
    gap: f64,
    gap_conic: f64,
}

impl Row<'_> {
    fn len(&self) -> usize {
        self.a.len()
    }

    fn weight(&self, at: usize) -> f64 {
        if self.weights.len() == 1 { self.weights[0] } else { self.weights[at] }
    }

    fn share(&self, at: usize) -> f64 {
        self.cone.map_or(1.0, |cone| cone.reserved[at])
    }

    fn theta2(&self, at: usize) -> f64 {
        self.cone.map_or(0.0, |cone| cone.uncertain[at] * cone.uncertain[at])
    }

    /// Sets every element to its root at `price`.
    fn pass<P: Power>(&self, power: P, price: Price, x: &mut [f64]) -> Pass {
        let mut pass = Pass::default();
        let (mut squares, mut mean, mut linear_slope) = (0.0, 0.0, 0.0);
        let (mut cross, mut conic) = (0.0, 0.0);
        for at in 0..self.len() {
            let (weight, share, theta2) = (self.weight(at), self.share(at), self.theta2(at));
            let a = self.a[at] + price.conic * theta2;
            let lin = price.linear * share;
            let mut value = if self.at_least {
                root_at_least(power, weight, a, self.b[at], lin)
            } else {
                root(power, weight, a, self.b[at] + lin)
            };
            let mut free = weight > 0.0 || value > 0.0;
            if let Some(limits) = self.limits.filter(|limits| value >= limits[at] || value.is_nan())
            {
                value = limits[at];
                free = false;
            }
            x[at] = value;
            squares += theta2 * value * value;
            mean += share * value;
            if free {
                let flat = self.at_least && value >= -self.b[at] / self.a[at];
                let curvature = if flat { 0.0 } else { a } + curvature(power, weight, value);
                let slope = -1.0 / curvature;
                linear_slope += share * share * slope;
                cross += theta2 * value * share * slope;
                conic += theta2 * theta2 * value * value * slope;
            }
        }
        pass.norm = squares.sqrt();
        pass.use_of_capacity = mean + pass.norm;
        pass.slope = linear_slope;
        if pass.norm > 0.0 && price.conic > 0.0 {
            pass.gap = price.conic * pass.norm - price.linear;
            pass.gap_conic = pass.norm + price.conic * conic / pass.norm;
            let gap_linear = price.conic * cross / pass.norm - 1.0;
            let answer = -gap_linear / pass.gap_conic;
            pass.slope = linear_slope + cross * answer + (cross + conic * answer) / pass.norm;
        }
        pass
    }

    /// Finds the conic price that belongs to a linear one.
    fn settle<P: Power>(&self, power: P, price: &mut Price, x: &mut [f64]) -> Pass {
        let first = self.pass(power, Price { linear: price.linear, conic: 0.0 }, x);
        if price.linear <= 0.0 || first.norm == 0.0 || !first.norm.is_finite() {
            price.conic = 0.0;
            return first;
        }
        let (mut low, mut high) = (price.linear / first.norm, f64::INFINITY);
        if price.conic <= low || price.conic.is_nan() {
            price.conic = low * 1.2;
        }
        let mut pass = first;
        for _ in 0..MOST_PASSES {
            pass = self.pass(power, *price, x);
            if pass.gap.abs() <= 1e-14 * price.linear || pass.gap.is_nan() {
                break;
            }
            if pass.gap < 0.0 {
                low = low.max(price.conic)
            } else {
                high = high.min(price.conic)
            }
            let newton = price.conic - pass.gap / pass.gap_conic;
            let next = if newton > low && newton < high {
                newton
            } else if high == f64::INFINITY {
                2.0 * price.conic
            } else {
                0.5 * (low + high)
            };
            if (next - price.conic).abs() <= NARROW * price.conic || next.is_nan() {
                break;
            }
            price.conic = next;
        }
        pass
    }

    fn evaluate<P: Power>(&self, power: P, price: &mut Price, x: &mut [f64]) -> Pass {
        if self.cone.is_some() { self.settle(power, price, x) } else { self.pass(power, *price, x) }
    }

    /// A linear price at which no element takes more than an equal share: the capacity fits then.
    fn highest<P: Power>(&self, power: P) -> f64 {
        let mut highest: f64 = 0.0;
        for at in 0..self.len() {
            let share = match self.cone {
                Some(cone) => cone.reserved[at] + cone.uncertain[at],
                None => 1.0,
            };
            let x = self.capacity / (self.len() as f64 * share);
            let gain = self.weight(at) * power.of_inverse(1.0 / x);
            let unused = self.at_least && x >= -self.b[at] / self.a[at];
            let excess = if unused { gain } else { gain - self.a[at] * x - self.b[at] };
            highest = highest.max(excess / self.share(at));
        }
        highest * (1.0 + 1e-9) + 1e-300
    }

    /// Sets `x` to the minimum and `price` to its multipliers; returns the passes that it took.
    ///
    /// `price` is where the search begins.
    pub(super) fn fill<P: Power>(&self, power: P, x: &mut [f64], price: &mut Price) -> usize {
        let (mut low, mut high) = (0.0, self.highest(power));
        if !(price.linear >= 0.0 && price.linear <= high) {
            *price = Price { linear: price.linear.clamp(0.0, high).max(0.0), conic: 0.0 };
        }
        for passes in 1..=MOST_PASSES {
            let pass = self.evaluate(power, price, x);
            let over = pass.use_of_capacity - self.capacity;
            let met = over.abs() <= self.tolerance * self.capacity;
            if met || (price.linear == 0.0 && over <= 0.0) {
                return passes;
            }
            if over > 0.0 {
                low = price.linear
            } else {
                high = price.linear
            }
            if high - low <= NARROW * high {
                return passes;
            }
            let next = next_price(price.linear, over, pass.slope, low, high);
            price.conic *= if price.linear > 0.0 { next / price.linear } else { 0.0 };
            price.linear = next;
        }
        MOST_PASSES
    }
}

fn curvature<P: Power>(power: P, weight: f64, x: f64) -> f64 {
    if weight > 0.0 { power.alpha() * weight * power.of_inverse(1.0 / x) / x } else { 0.0 }
}

/// Newton where it stays within the bracket; else towards 0, or the middle.
pub(super) fn next_price(price: f64, over: f64, slope: f64, low: f64, high: f64) -> f64 {
    let newton = price - over / slope;
    if newton > low && newton < high {
        newton
    } else if newton <= 0.0 && low == 0.0 && over < 0.0 {
        // Perhaps the capacity does not bind at all.
        0.0
    } else if over < 0.0 && low == 0.0 {
        0.1 * high
    } else if low > 0.0 && high / low > 16.0 {
        (low * high).sqrt()
    } else {
        0.5 * (low + high)
    }
}
