//! One element of a host's step: the root of `w x^-alpha = a x + b`.
use super::utility::Power;

/// Newton steps of one root at most: from the left the error is squared each time.
const STEPS: usize = 60;
const RELATIVE: f64 = 4e-15;

/// Returns the only positive root of `w x^-alpha = a x + b`, for `w > 0`, `a >= 0`; for `w = 0` the
/// least of a parabola, or 0. Infinite where nothing holds the rate back.
///
/// Newton from the left of the root never oversteps: the left side is convex and falls.
#[inline]
pub(super) fn root<P: Power>(power: P, w: f64, a: f64, b: f64) -> f64 {
    if w == 0.0 {
        return if a > 0.0 { (-b / a).max(0.0) } else { 0.0 };
    }
    let alpha = power.alpha();
    if alpha == 1.0 {
        let square = (b * b + 4.0 * a * w).sqrt();
        return if b > 0.0 { 2.0 * w / (b + square) } else { (square - b) / (2.0 * a) };
    }
    let mut x = left(alpha, w, a, b);
    for _ in 0..STEPS {
        let gain = w * power.of_inverse(1.0 / x);
        let step = (gain - a * x - b) / (a + alpha * gain / x);
        x += step;
        if step.abs() <= RELATIVE * x || step.is_nan() {
            break;
        }
    }
    x
}

/// Returns a point left of the root, or nearly on it.
fn left(alpha: f64, w: f64, a: f64, b: f64) -> f64 {
    let alone = if a > 0.0 { (w / a).powf(1.0 / (1.0 + alpha)) } else { f64::INFINITY };
    if b > 0.0 {
        let half = 0.5_f64.powf(1.0 / (1.0 + alpha));
        (alone * half).min((w / (2.0 * b)).powf(1.0 / alpha))
    } else {
        alone.max(-b / a)
    }
}

/// As [`root`], where completions may be left unused: `lin` is what the capacity costs, and beyond
/// `-b / a` nothing else does.
#[inline]
pub(super) fn root_at_least<P: Power>(power: P, w: f64, a: f64, b: f64, lin: f64) -> f64 {
    let x = root(power, w, a, b + lin);
    let unused = -b / a;
    if x <= unused || w == 0.0 {
        x.min(unused.max(0.0))
    } else if lin > 0.0 {
        (w / lin).powf(1.0 / power.alpha())
    } else {
        1e30
    }
}
