//! The steps of one round, each as its own function (DRUM, Algorithms 1 and 2, with the changes that
//! `docs/concept/drum.md` gives reasons for).
//!
//! A sender moves its rates against the prices that it was told ([`Sender`]); a receiver moves its
//! completions, its prices and the edge values ([`relax`], [`Receiver`]). Solver and host call these.
use super::fill::{Price, Row};
use super::joint::{Joint, JointScratch};
use super::model::ConeRow;
use super::real::Real;
use super::utility::{Power, Three};

/// Over-relaxation: between 0 and 2.
pub(super) const RELAXATION: f64 = 1.8;
/// Factor of a sender's curvature in a penalty.
pub(super) const KAPPA: f64 = 1.7;
/// A curvature is taken no nearer to 0 than this fraction of the start.
pub(super) const CLIP: f64 = 0.3;
/// Rounds of an epoch in which penalties are renewed.
pub(super) const RENEWALS: usize = 30;

/// What a sender keeps of one edge: its own share, and what it was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told<T> {
    /// Price of the receiver.
    pub(super) price: T,
    /// The edge value.
    pub(super) value: T,
    /// Inverse curvature of the receiver's utility, divided by its number of edges.
    pub(super) flatness: T,
    /// Curvature of the receiver's utility.
    pub(super) curvature: T,
}

/// Coefficients of a sender's minimisation, gathered over its edges.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sender<T> {
    pub(super) a: T,
    pub(super) b: T,
}

impl<T: Real> Sender<T> {
    /// Adds an edge.
    #[inline(always)]
    pub(super) fn add(&mut self, rho: T, completions: T, told: Told<T>) {
        let (a, b) = edge_slopes(rho, completions, told.price, told.value);
        self.a += a;
        self.b += b;
    }
}

/// What an edge adds to the coefficients of its sender.
#[inline(always)]
pub(super) fn edge_slopes<T: Real>(rho: T, completions: T, price: T, value: T) -> (T, T) {
    let weight = rho * completions;
    (weight * completions, completions * price - weight * value)
}

/// Inverse curvature of a sender's utility, `factor x^(alpha+1)`, no nearer to 0 than `floor`; `factor`
/// is `1 / (alpha w)`, times what a penalty multiplies it by.
#[inline(always)]
pub(super) fn rate_flatness<T: Real, P: Power>(power: P, factor: T, x: T, floor: T) -> T {
    let x = x.or_larger(floor);
    power.of(x) * x * factor
}

/// Inverse curvature of the completion utility, `factor z^4`; `factor` is `1 / (6 beta)`, over the edges.
#[inline(always)]
pub(super) fn completion_flatness<T: Real>(factor: T, z: T, floor: T) -> T {
    let z = z.or_larger(floor);
    let square = z * z;
    square * (square * factor)
}

/// What preemption adds to a curvature: `price theta^2 / ||theta o v||`, which is the conic price.
#[inline(always)]
pub(super) fn cone_curvature(price: Price, cone: Option<ConeRow<'_>>, at: usize) -> f64 {
    cone.map_or(0.0, |cone| price.conic * cone.uncertain[at] * cone.uncertain[at])
}

/// The curvature that a sender's rate has without one of its edges: `rate` of its utility, `all` with
/// what all its edges complete, `own` of this edge.
#[inline(always)]
pub(super) fn stiffness_elsewhere<T: Real>(rate: T, all: T, own: T) -> T {
    (all - own).or_larger(rate)
}

/// The inverse penalty of an edge. `stiffness` is `KAPPA / sum of completions` of its sender times the
/// curvature that the sender's rate has without this edge: of its utility, and of what it completes
/// elsewhere. `flatness` is what the receiver told.
#[inline(always)]
pub(super) fn inverse_penalty<T: Real>(stiffness: T, completions: T, flatness: T) -> T {
    (completions / stiffness).or_smaller(flatness)
}

/// Over-relaxes what a sender sent, from the receiver's own edge value.
#[inline(always)]
pub(super) fn relax<T: Real>(sent: T, value: T) -> T {
    T::of(RELAXATION) * sent + T::of(1.0 - RELAXATION) * value
}

/// The inverse of [`relax`]: what was sent; `back` is `1 / RELAXATION`.
#[inline(always)]
pub(super) fn unrelax<T: Real>(relaxed: T, value: T, back: T) -> T {
    (relaxed - T::of(1.0 - RELAXATION) * value) * back
}

/// What a receiver gathers over the edges of one application.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver<T> {
    pub(super) sum: T,
    /// Sum of the inverse penalties.
    pub(super) inverse: T,
}

impl<T: Real> Receiver<T> {
    /// Adds an edge.
    #[inline(always)]
    pub(super) fn add(&mut self, relaxed: T, inverse: T) {
        self.sum += relaxed;
        self.inverse += inverse;
    }
}

/// The linear coefficient of a receiver's minimisation, at its penalty and price.
#[inline(always)]
pub(super) fn completion_slope<T: Real>(penalty: T, sum: T, price: T) -> T {
    -(penalty * sum + price)
}

/// Returns how far the price of an application moves once it has `z` completions.
#[inline(always)]
pub(super) fn move_of_price<T: Real>(penalty: T, sum: T, z: T) -> T {
    penalty * (sum - z)
}

/// Scratch rows of one host; nothing is allocated once it is made.
#[derive(Clone, Debug)]
pub(super) struct Scratch<T> {
    pub(super) a: Vec<T>,
    pub(super) b: Vec<T>,
    pub(super) fall: Vec<T>,
    pub(super) steps: Vec<T>,
    pub(super) old: Vec<T>,
    pub(super) relaxed: Vec<T>,
    /// What edges added up to.
    pub(super) slopes: Vec<Sender<T>>,
    pub(super) sums: Vec<Receiver<T>>,
    wide: [Vec<f64>; 4],
}

impl<T: Real> Scratch<T> {
    pub(super) fn new(widest: usize) -> Self {
        let row = || vec![T::default(); widest];
        let wide = || vec![0.0; widest];
        Self {
            a: row(),
            b: row(),
            fall: row(),
            steps: row(),
            old: row(),
            relaxed: row(),
            slopes: vec![Sender::default(); widest],
            sums: vec![Receiver::default(); widest],
            wide: [wide(), wide(), wide(), wide()],
        }
    }
}

/// What binds a host's step besides the coefficients in its scratch rows.
pub(super) struct Bounds<'a, T> {
    /// One for each element, or one for all.
    pub(super) weights: &'a [T],
    pub(super) cone: Option<ConeRow<'a>>,
    pub(super) limits: Option<&'a [f64]>,
    pub(super) capacity: f64,
    pub(super) at_least: bool,
}

/// Moves one host's rates or completions to their minimum; returns the passes that it took.
///
/// The fast form does it where there is only a capacity; where it does not end the safe form begins
/// anew.
#[inline(always)]
pub(super) fn move_host<T: Real, P: Power>(
    power: P,
    bounds: &Bounds<'_, T>,
    scratch: &mut Scratch<T>,
    x: &mut [T],
    price: &mut Price,
) -> usize {
    let count = x.len();
    let plain = bounds.cone.is_none() && bounds.limits.is_none() && !bounds.at_least;
    if plain && bounds.weights[0] > T::default() {
        let joint = Joint {
            weights: bounds.weights,
            a: &scratch.a[..count],
            b: &scratch.b[..count],
            capacity: bounds.capacity,
        };
        let mut linear = price.linear;
        let mut rows = JointScratch { fall: &mut scratch.fall, steps: &mut scratch.steps };
        if let Some(passes) = joint.fill(power, x, &mut rows, &mut linear) {
            price.linear = linear;
            return passes;
        }
    }
    move_safely(power, bounds, scratch, x, price)
}

#[inline(never)]
fn move_safely<T: Real, P: Power>(
    power: P,
    bounds: &Bounds<'_, T>,
    scratch: &mut Scratch<T>,
    x: &mut [T],
    price: &mut Price,
) -> usize {
    let count = x.len();
    let [weights, a, b, wide] = &mut scratch.wide;
    widen(bounds.weights, weights);
    widen(&scratch.a[..count], a);
    widen(&scratch.b[..count], b);
    let row = Row {
        weights: &weights[..bounds.weights.len()],
        a: &a[..count],
        b: &b[..count],
        cone: bounds.cone,
        limits: bounds.limits,
        capacity: bounds.capacity,
        at_least: bounds.at_least,
        tolerance: 1e-13,
    };
    let passes = row.fill(power, &mut wide[..count], price);
    x.iter_mut().zip(&*wide).for_each(|(x, wide)| *x = T::of(*wide));
    passes
}

fn widen<T: Real>(from: &[T], to: &mut [f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.wide());
}

/// Exponent of the completion utility.
pub(super) const COMPLETIONS: Three = Three;
