//! One host's step, in its fast form: Newton on rates and price together, from the last iterate.
//!
//! A pass takes one division an element: with `t = x^alpha` the Newton step of
//! `w x^-alpha = a x + b + price` is `(t (a x + b + price) - w) x / (a x t + alpha w)`.
use super::real::Real;
use super::utility::Power;

/// Elements that are computed side by side: a multiple of what one register of any machine holds.
const LANES: usize = 16;
/// Passes before the safe form has to do it.
pub(super) const MOST_PASSES: usize = 8;

struct Sums {
    x: f64,
    /// How much `x` falls for each unit of price.
    fall: f64,
    /// Largest step of an element, as a fraction of it.
    step: f64,
}

struct Lanes<T> {
    x: [T; LANES],
    fall: [T; LANES],
    step: [T; LANES],
}

/// Moves one element: first by the price's last change, then by Newton.
#[inline(always)]
fn element<T: Real, P: Power>(power: P, w: T, a: T, b: T, x: &mut T, fall: &mut T, moved: T) -> T {
    let tenth = T::of(0.1);
    let from = (*x - *fall * moved).or_larger(tenth * *x);
    let t = power.of(from);
    let inverse = T::of(1.0) / (a * from * t + T::of(power.alpha()) * w);
    let step = (t * (a * from + b) - w) * inverse;
    *x = (from - step * from).or_larger(tenth * from);
    *fall = from * t * inverse;
    step.magnitude()
}

/// One pass over a row; `b` is taken with `price` added.
#[inline(always)]
fn pass<T: Real, P: Power, const ONE_WEIGHT: bool>(
    power: P,
    row: &Joint<'_, T>,
    x: &mut [T],
    fall: &mut [T],
    moved: T,
    price: T,
) -> Sums {
    let count = x.len();
    let (a, b, fall) = (&row.a[..count], &row.b[..count], &mut fall[..count]);
    let weights = if ONE_WEIGHT { a } else { &row.weights[..count] };
    let one = row.weights[0];
    let mut sums = Sums { x: 0.0, fall: 0.0, step: 0.0 };
    let zero = T::default();
    // Blocks of at most 64 are added in the precision of the iteration, their sums in f64.
    for start in (0..count).step_by(4 * LANES) {
        let end = count.min(start + 4 * LANES);
        let mut lanes = Lanes { x: [zero; LANES], fall: [zero; LANES], step: [zero; LANES] };
        let mut at = start;
        while at + LANES <= end {
            let range = at..at + LANES;
            let (w, a, b) = (&weights[range.clone()], &a[range.clone()], &b[range.clone()]);
            let (x, fall) = (&mut x[range.clone()], &mut fall[range]);
            for lane in 0..LANES {
                let w = if ONE_WEIGHT { one } else { w[lane] };
                let step = element(
                    power,
                    w,
                    a[lane],
                    b[lane] + price,
                    &mut x[lane],
                    &mut fall[lane],
                    moved,
                );
                lanes.x[lane] += x[lane];
                lanes.fall[lane] += fall[lane];
                lanes.step[lane] = step.or_larger(lanes.step[lane]);
            }
            at += LANES;
        }
        for at in at..end {
            let w = if ONE_WEIGHT { one } else { weights[at] };
            let step = element(power, w, a[at], b[at] + price, &mut x[at], &mut fall[at], moved);
            lanes.x[0] += x[at];
            lanes.fall[0] += fall[at];
            lanes.step[0] = step.or_larger(lanes.step[0]);
        }
        sums.x += lanes.x.into_iter().sum::<T>().wide();
        sums.fall += lanes.fall.into_iter().sum::<T>().wide();
        sums.step = lanes.step.into_iter().fold(sums.step, |most, step| most.max(step.wide()));
    }
    sums
}

/// A row without preemption, limits or unused completions.
pub(super) struct Joint<'a, T> {
    /// One for each element, or one for all; above 0.
    pub(super) weights: &'a [T],
    pub(super) a: &'a [T],
    pub(super) b: &'a [T],
    pub(super) capacity: f64,
}

impl<T: Real> Joint<'_, T> {
    /// Moves `x` and `price` to the minimum; returns the passes, or `None` where it did not end.
    ///
    /// The last pass's error is the square of its step, so a step of the root of the tolerance is
    /// enough.
    #[inline(always)]
    pub(super) fn fill<P: Power>(
        &self,
        power: P,
        x: &mut [T],
        fall: &mut [T],
        price: &mut f64,
    ) -> Option<usize> {
        if self.weights.len() == 1 && x.len() != 1 {
            self.fill_rows::<P, true>(power, x, fall, price)
        } else {
            self.fill_rows::<P, false>(power, x, fall, price)
        }
    }

    #[inline(always)]
    fn fill_rows<P: Power, const ONE_WEIGHT: bool>(
        &self,
        power: P,
        x: &mut [T],
        fall: &mut [T],
        price: &mut f64,
    ) -> Option<usize> {
        let enough = 0.3 * T::CAPACITY_TOLERANCE.sqrt();
        fall[..x.len()].fill(T::default());
        let mut moved = 0.0;
        let mut now = *price;
        for passes in 1..=MOST_PASSES {
            let sums = pass::<T, P, ONE_WEIGHT>(power, self, x, fall, T::of(moved), T::of(now));
            let over = sums.x - self.capacity;
            let next = (now + over / sums.fall).max(0.0);
            moved = next - now;
            now = next;
            if !moved.is_finite() {
                return None;
            }
            let slack = now == 0.0 && moved == 0.0;
            if sums.step <= enough && (over.abs() <= enough * self.capacity || slack) {
                let moved = T::of(moved);
                for (x, fall) in x.iter_mut().zip(&*fall) {
                    *x = (*x - *fall * moved).or_larger(T::of(0.1) * *x);
                }
                *price = now;
                return Some(passes);
            }
        }
        None
    }
}
