//! How a sender's rate answers to a price that rises.
use super::utility::{exp2_below_one, log2_above_one};

/// How a sender lowers its rate when its marginal utility has to rise by a factor.
///
/// The marginal utility is a sum, `A t^-alpha + B t^-3` of what it was at a rate `t` times as high. At
/// first the rate falls by its elasticity; far away it falls as the steeper of the two alone would let
/// it, which never is too far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    /// `1 / eta`.
    pub(super) inverse_elasticity: f64,
    /// `-log2` of the steeper part, over its exponent; `1 / exponent` of it.
    pub(super) offset: f64,
    steepest: f64,
}

/// Exponent of the part that is the steeper one far away.
pub(super) fn steep_exponent(alpha: f64) -> f64 {
    alpha.max(3.0)
}

impl Answer {
    /// `rate` and `completion` are the parts of the marginal utility.
    #[inline(always)]
    pub(super) fn new(alpha: f64, rate: f64, completion: f64) -> Self {
        let marginal = rate + completion;
        let exponent = steep_exponent(alpha);
        let part = if alpha < 3.0 { completion } else { rate };
        let offset = log2_above_one(marginal / part) / exponent;
        Self {
            inverse_elasticity: marginal / (alpha * rate + 3.0 * completion),
            offset: if part > 1e-12 * marginal { offset } else { f64::INFINITY },
            steepest: 1.0 / exponent,
        }
    }

    /// As [`Self::new`], from the elasticity of the marginal utility, which tells its parts.
    pub(super) fn of_elasticity(alpha: f64, elasticity: f64) -> Self {
        let completion = if alpha == 3.0 { 0.0 } else { (elasticity - alpha) / (3.0 - alpha) };
        let completion = completion.clamp(0.0, 1.0);
        Self::new(alpha, 1.0 - completion, completion)
    }

    /// Returns the factor of the rate, and its elasticity there.
    #[inline]
    pub(super) fn at(&self, ratio: f64) -> (f64, f64) {
        factor_at(ratio, self.inverse_elasticity, self.offset, self.steepest)
    }
}

/// [`Answer::at`] of an answer whose parts stand in arrays.
#[inline(always)]
pub(super) fn factor_at(
    ratio: f64,
    inverse_elasticity: f64,
    offset: f64,
    steepest: f64,
) -> (f64, f64) {
    let log = log2_above_one(ratio);
    let (first, far) = (log * inverse_elasticity, offset + log * steepest);
    let (power, found) = if first <= far { (first, inverse_elasticity) } else { (far, steepest) };
    (exp2_below_one(power), found)
}

/// Returns how far an overloaded host raises its price next, from what its senders would use at the
/// price that it has and how that falls with the price.
///
/// A Newton step towards the root of `load^-bend`, which is nearly straight, and concave: with inverse
/// elasticities of at most `1 / bend` it is a mean of concave functions of the price, with a constant
/// elasticity of substitution. So no step goes too far.
pub(super) fn rise_step(load: f64, slope: f64, capacity: f64, bend: f64) -> f64 {
    let ratio = load / capacity;
    let power = if bend == 1.0 { ratio } else { ratio.powf(bend) };
    load * (power - 1.0) / (-slope * bend)
}
