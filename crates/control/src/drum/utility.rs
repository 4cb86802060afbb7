//! The utility of a rate, its derivative and the inverse of that.
//!
//! alpha = 1/2, 1, 2, 3 and 5 take products and roots; only other values take a logarithm and an
//! exponential.
use super::real::Real;

/// The exponent of a utility, known to the compiler where it is a common one.
pub(super) trait Power: Copy {
    fn alpha(self) -> f64;
    /// `inverse^alpha`, which is `x^-alpha` for `inverse = 1 / x`.
    fn of_inverse<T: Real>(self, inverse: T) -> T;

    /// `x^alpha`.
    #[inline(always)]
    fn of<T: Real>(self, x: T) -> T {
        self.of_inverse(x)
    }
}

macro_rules! power {
    ($name:ident, $alpha:expr, $inverse:ident => $body:expr) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl Power for $name {
            #[inline(always)]
            fn alpha(self) -> f64 {
                $alpha
            }

            #[inline(always)]
            fn of_inverse<T: Real>(self, $inverse: T) -> T {
                $body
            }
        }
    };
}

power!(Half, 0.5, inverse => inverse.root());
power!(One, 1.0, inverse => inverse);
power!(Two, 2.0, inverse => inverse * inverse);
power!(Three, 3.0, inverse => inverse * inverse * inverse);
power!(Five, 5.0, inverse => {
    let square = inverse * inverse;
    square * square * inverse
});

/// Any other exponent.
#[derive(Clone, Copy)]
pub(super) struct General(pub(super) f64);

impl Power for General {
    #[inline(always)]
    fn alpha(self) -> f64 {
        self.0
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
    if alpha == 1.0 {
        inverse
    } else if alpha == 2.0 {
        inverse.sqrt()
    } else if alpha == 0.5 {
        inverse * inverse
    } else if alpha == 3.0 {
        inverse.cbrt()
    } else {
        inverse.powf(1.0 / alpha)
    }
}

/// Returns the derivative of `-beta / z^2`, what more completions are worth.
#[must_use]
pub fn completion_marginal(beta: f64, z: f64) -> f64 {
    2.0 * beta * marginal(3.0, z)
}
