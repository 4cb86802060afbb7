//! One host's step, in its fast form: Newton on rates and price together, from the last iterate.
//!
//! A pass takes one division an element: with `t = x^alpha` the Newton step of
//! `w x^-alpha = a x + b + price` is `(t (a x + b + price) - w) x / (a x t + alpha w)`.
use super::real::Real;
use super::utility::Power;

/// Sums that are kept side by side: as many as one register of any machine holds of `f64`.
const LANES: usize = 8;
/// Passes before the safe form has to do it.
pub(super) const MOST_PASSES: usize = 8;

struct Sums {
    x: f64,
    /// How much `x` falls for each unit of price.
    fall: f64,
    /// Largest step of an element, as a fraction of it.
    step: f64,
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
///
/// Every loop here is over whole slices of one length, and does one thing: the compiler makes vectors of
/// them for the instruction set that the caller chose.
#[inline(always)]
fn pass<T: Real, P: Power, const ONE_WEIGHT: bool>(
    power: P,
    row: &Joint<'_, T>,
    x: &mut [T],
    scratch: &mut JointScratch<'_, T>,
    moved: T,
    price: T,
) -> Sums {
    let count = x.len();
    let (a, b) = (&row.a[..count], &row.b[..count]);
    let (fall, steps) = (&mut scratch.fall[..count], &mut scratch.steps[..count]);
    if ONE_WEIGHT {
        let w = row.weights[0];
        for at in 0..count {
            steps[at] = element(power, w, a[at], b[at] + price, &mut x[at], &mut fall[at], moved);
        }
    } else {
        let weights = &row.weights[..count];
        for at in 0..count {
            let w = weights[at];
            steps[at] = element(power, w, a[at], b[at] + price, &mut x[at], &mut fall[at], moved);
        }
    }
    Sums { x: sum(x), fall: sum(fall), step: largest(steps) }
}

/// Adds in `f64`.
#[inline(always)]
pub(super) fn sum<T: Real>(values: &[T]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane].wide();
        }
    }
    lanes.into_iter().sum::<f64>() + rest.iter().map(|value| value.wide()).sum::<f64>()
}

/// Adds the squares, in `f64`.
#[inline(always)]
pub(super) fn sum_of_squares<T: Real>(values: &[T]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane].wide();
            lanes[lane] += value * value;
        }
    }
    let rest: f64 = rest.iter().map(|value| value.wide() * value.wide()).sum();
    lanes.into_iter().sum::<f64>() + rest
}

#[inline(always)]
fn largest<T: Real>(values: &[T]) -> f64 {
    const WIDE: usize = 2 * LANES;
    let mut lanes = [T::default(); WIDE];
    let (chunks, rest) = values.as_chunks::<WIDE>();
    for chunk in chunks {
        for lane in 0..WIDE {
            // What is not a number is the largest of all.
            lanes[lane] = if lanes[lane] > chunk[lane] { lanes[lane] } else { chunk[lane] };
        }
    }
    let most = lanes.into_iter().chain(rest.iter().copied());
    most.fold(0.0, |most, value| if most > value.wide() { most } else { value.wide() })
}

/// Rows that a fill needs besides what it is given.
pub(super) struct JointScratch<'a, T> {
    pub(super) fall: &'a mut [T],
    pub(super) steps: &'a mut [T],
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
        scratch: &mut JointScratch<'_, T>,
        price: &mut f64,
    ) -> Option<usize> {
        if self.weights.len() == 1 && x.len() != 1 {
            self.fill_rows::<P, true>(power, x, scratch, price)
        } else {
            self.fill_rows::<P, false>(power, x, scratch, price)
        }
    }

    #[inline(always)]
    fn fill_rows<P: Power, const ONE_WEIGHT: bool>(
        &self,
        power: P,
        x: &mut [T],
        scratch: &mut JointScratch<'_, T>,
        price: &mut f64,
    ) -> Option<usize> {
        let enough = 0.3 * T::CAPACITY_TOLERANCE.sqrt();
        scratch.fall[..x.len()].fill(T::default());
        let mut moved = 0.0;
        let mut now = *price;
        for passes in 1..=MOST_PASSES {
            let sums = pass::<T, P, ONE_WEIGHT>(power, self, x, scratch, T::of(moved), T::of(now));
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
                for (x, fall) in x.iter_mut().zip(&*scratch.fall) {
                    *x = (*x - *fall * moved).or_larger(T::of(0.1) * *x);
                }
                *price = now;
                return Some(passes);
            }
        }
        None
    }
}
