//! Packet sequence numbers: 24 bits that wrap.
//!
//! They have no total order, only a distance: the later of two is at most half the number space
//! ahead (IBTA volume 1, 9.7.1). So there is no `Ord` here.
use catchment_verbs_types::MAX_24_BITS;

/// A packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, derive_more::Display)]
pub struct Psn(u32);

impl Psn {
    /// Mask of the significant bits.
    pub const MASK: u32 = MAX_24_BITS;

    /// Creates a number from the lowest 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// Returns the number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// Returns the number `packets` after this one.
    #[must_use]
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// Returns the number `packets` before this one.
    #[must_use]
    pub const fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// Returns how many packets this one is after `earlier`: from -2^23 to 2^23 - 1, negative when
    /// it is before.
    pub const fn distance_from(self, earlier: Self) -> i32 {
        // Shifting left and back extends the sign of 24 bits.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_wrap_at_24_bits() {
        assert_eq!(Psn::new(u32::MAX), Psn::new(0x00ff_ffff));
        assert_eq!(Psn::new(0x00ff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).sub(1), Psn::new(0x00ff_ffff));
        assert_eq!(Psn::new(0x00ff_fffe).add(5).value(), 3);
    }

    #[test]
    fn half_the_numbers_are_ahead_and_half_behind() {
        let zero = Psn::new(0);
        assert_eq!(Psn::new(0x007f_ffff).distance_from(zero), 0x007f_ffff);
        assert_eq!(Psn::new(0x0080_0000).distance_from(zero), -0x0080_0000);
        assert_eq!(zero.distance_from(Psn::new(0x00ff_ffff)), 1);
        assert_eq!(Psn::new(0x00ff_ffff).distance_from(zero), -1);
    }

    proptest! {
        #[test]
        fn the_distance_is_what_was_added(start: u32, ahead in 0_u32..1 << 23) {
            let start = Psn::new(start);
            prop_assert_eq!(start.add(ahead).distance_from(start), ahead as i32);
            prop_assert_eq!(start.distance_from(start.add(ahead)), -(ahead as i32));
            prop_assert_eq!(start.add(ahead).sub(ahead), start);
        }
    }
}
