//! The utility of a rate, its derivative and the inverse of that.
//!
//! alpha = 1/2, 1, 2, 3 and 5 take products and roots; only other values take a logarithm and an
//! exponential.
use super::real::Real;

/// The exponent of a utility, known to the compiler where it is a common one.
pub(super) trait Power: Copy + Send + Sync {
    fn alpha(self) -> f64;
    /// `marginal^(-1/alpha)` for `inverse = 1 / marginal`: the rate whose marginal utility that is.
    fn rate_of(self, inverse: f64) -> f64;
    /// `inverse^alpha`, which is `x^-alpha` for `inverse = 1 / x`.
    fn of_inverse<T: Real>(self, inverse: T) -> T;

    /// `x^alpha`.
    #[inline(always)]
    fn of<T: Real>(self, x: T) -> T {
        self.of_inverse(x)
    }
}

macro_rules! power {
    ($name:ident, $alpha:expr, $inverse:ident => $body:expr, $rate:expr) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl Power for $name {
            #[inline(always)]
            fn alpha(self) -> f64 {
                $alpha
            }

            #[inline(always)]
            fn rate_of(self, $inverse: f64) -> f64 {
                $rate
            }

            #[inline(always)]
            fn of_inverse<T: Real>(self, $inverse: T) -> T {
                $body
            }
        }
    };
}

power!(Half, 0.5, inverse => inverse.root(), inverse * inverse);
power!(One, 1.0, inverse => inverse, inverse);
power!(Two, 2.0, inverse => inverse * inverse, inverse.sqrt());
power!(Three, 3.0, inverse => inverse * inverse * inverse, cube_root(inverse));
power!(Five, 5.0, inverse => {
    let square = inverse * inverse;
    square * square * inverse
}, inverse.powf(0.2));

/// Any other exponent.
#[derive(Clone, Copy)]
pub(super) struct General(pub(super) f64);

impl Power for General {
    #[inline(always)]
    fn alpha(self) -> f64 {
        self.0
    }

    #[inline(always)]
    fn rate_of(self, inverse: f64) -> f64 {
        inverse.powf(1.0 / self.0)
    }

    #[inline(always)]
    fn of_inverse<T: Real>(self, inverse: T) -> T {
        inverse.power(self.0)
    }
}

/// Evaluates `$body` with `$name` bound to the [`Power`] of `$alpha`.
macro_rules! with_power {
    ($alpha:expr, $name:ident => $body:expr) => {{
        use $crate::drum::utility::{Five, General, Half, One, Three, Two};
        let alpha: f64 = $alpha;
        if alpha == 1.0 {
            let $name = One;
            $body
        } else if alpha == 2.0 {
            let $name = Two;
            $body
        } else if alpha == 0.5 {
            let $name = Half;
            $body
        } else if alpha == 3.0 {
            let $name = Three;
            $body
        } else if alpha == 5.0 {
            let $name = Five;
            $body
        } else {
            let $name = General(alpha);
            $body
        }
    }};
}
pub(super) use with_power;

/// Returns the binary logarithm of `base >= 1`, to about 1e-11.
#[inline(always)]
pub(super) fn log2_above_one(base: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = base.min(1e300).to_bits();
    let mut two = (bits >> 52) as f64 - 1023.0;
    let mut rest = f64::from_bits((bits & MANTISSA) | (1023 << 52));
    if rest > std::f64::consts::SQRT_2 {
        (rest, two) = (0.5 * rest, two + 1.0);
    }
    // ln rest = 2 artanh t.
    let t = (rest - 1.0) / (rest + 1.0);
    let square = t * t;
    let series = 1.0 / 9.0 + square * (1.0 / 11.0 + square / 13.0);
    let series = 1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * series));
    two + 2.0 * std::f64::consts::LOG2_E * (t + t * square * series)
}

/// Returns `2^-power` for `power >= 0`, to about 1e-10 of itself and never above 1; 0 below 2^-1000.
#[inline(always)]
pub(super) fn exp2_below_one(power: f64) -> f64 {
    let power = power.clamp(0.0, 1001.0);
    let whole = (power + 0.5) as i32;
    let rest = (f64::from(whole) - power) * std::f64::consts::LN_2;
    let mut exp = 1.0;
    for order in [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
        exp = 1.0 + rest * exp * (1.0 / order);
    }
    let scaled = exp * f64::from_bits(((1023 - whole) as u64) << 52);
    if power > 1000.0 { 0.0 } else { scaled.min(1.0) }
}

/// Returns `U(x)`, the utility of a rate for weight 1.
#[must_use]
pub fn utility(alpha: f64, x: f64) -> f64 {
    if alpha == 1.0 { x.ln() } else { x * marginal(alpha, x) / (1.0 - alpha) }
}

/// Returns `x^-alpha`, the derivative of [`utility`].
#[must_use]
#[inline]
pub fn marginal(alpha: f64, x: f64) -> f64 {
    let inverse = 1.0 / x;
    with_power!(alpha, power => power.of_inverse(inverse))
}

/// Returns the rate whose [`marginal`] utility is `price`.
#[must_use]
#[inline]
pub fn rate_at(alpha: f64, price: f64) -> f64 {
    let inverse = 1.0 / price;
    with_power!(alpha, power => power.rate_of(inverse))
}

/// Returns the cube root of a number above 0, to the last digits; 1e-300 and 1e300 are the least and the largest whose root it finds.
#[inline(always)]
pub(super) fn cube_root(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.clamp(1e-300, 1e300).to_bits();
    // x is rest 8^third, the rest from 1 to 8.
    let exponent = (bits >> 52) as i32 - 1023;
    let third = (exponent + 1023) / 3 - 341;
    let two = f64::from_bits(((1023 + exponent - 3 * third) as u64) << 52);
    let rest = f64::from_bits((bits & MANTISSA) | (1023 << 52)) * two;
    let mut root = 0.762_502_64 + rest * (0.268_075_57 - 0.014_670_66 * rest);
    for _ in 0..2 {
        // Halley's step: the error is nearly the cube of the one before, first 1.6 %.
        let cube = root * root * root;
        root = root * (cube + 2.0 * rest) / (2.0 * cube + rest);
    }
    root * f64::from_bits(((1023 + third) as u64) << 52)
}

/// Returns the derivative of `-beta / z^2`, what more completions are worth.
#[must_use]
pub fn completion_marginal(beta: f64, z: f64) -> f64 {
    2.0 * beta * marginal(3.0, z)
}

#[cfg(test)]
mod tests {
    use super::cube_root;

    #[test]
    fn a_cube_root_is_right_to_the_last_digits() {
        let mut x = 1e-300;
        while x < 1e300 {
            let error = cube_root(x) / x.cbrt() - 1.0;
            assert!(error.abs() < 1e-15, "{x}: {error}");
            x *= 1.37;
        }
        assert_eq!((cube_root(8.0), cube_root(1.0)), (2.0, 1.0));
        assert!(cube_root(0.0) > 0.0 && cube_root(f64::INFINITY) < f64::INFINITY);
    }
}
