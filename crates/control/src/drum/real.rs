//! The two precisions of the iteration.
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

mod sealed {
    pub trait Sealed {}
}

/// A floating-point number that the solver iterates in: `f32` or `f64`.
///
/// Sums over a host, prices, bounds and objectives are `f64` in both.
pub trait Real:
    sealed::Sealed
    + Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// How near a sum must come to its capacity within an iteration, as a fraction of it.
    const CAPACITY_TOLERANCE: f64;
    /// Name of the type.
    const NAME: &'static str;
    /// Rounds to this precision.
    fn of(value: f64) -> Self;
    /// Widens, exactly.
    fn wide(self) -> f64;
    /// Square root.
    #[must_use]
    fn root(self) -> Self;
    /// Magnitude.
    #[must_use]
    fn magnitude(self) -> Self;
    /// Larger of the two; `other` if `self` is not a number.
    #[must_use]
    fn or_larger(self, other: Self) -> Self;
    /// Smaller of the two; `other` if `self` is not a number.
    #[must_use]
    fn or_smaller(self, other: Self) -> Self;
    /// `self^exponent` for `self > 0`, in general.
    #[must_use]
    fn power(self, exponent: f64) -> Self;
}

macro_rules! real {
    ($type:ident, $tolerance:expr) => {
        impl sealed::Sealed for $type {}

        impl Real for $type {
            const CAPACITY_TOLERANCE: f64 = $tolerance;
            const NAME: &'static str = stringify!($type);

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }

            #[inline(always)]
            fn or_larger(self, other: Self) -> Self {
                if self > other { self } else { other }
            }

            #[inline(always)]
            fn or_smaller(self, other: Self) -> Self {
                if self < other { self } else { other }
            }

            #[inline(always)]
            fn power(self, exponent: f64) -> Self {
                (self.ln() * exponent as Self).exp()
            }
        }
    };
}

real!(f32, 1e-5);
real!(f64, 1e-9);
