//! Whether a device or a class is within its share.

/// Parts of a bit that are counted: a rate times nanoseconds is earned without rounding.
const SCALE: u128 = 1_000_000_000;

/// A bucket that whole transfers are charged to, or not at all. Full at first.
///
/// A pacer's bucket lets the last packet owe; this one decides an order, and must say no before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    spent: u128,
    at_ns: u64,
}

impl Share {
    /// Takes `bytes` if there are as many, earned at `rate_bps` and kept for `depth_ns`.
    pub(super) fn take(&mut self, now_ns: u64, bytes: u64, rate_bps: u64, depth_ns: u64) -> bool {
        let earned = u128::from(now_ns.saturating_sub(self.at_ns)) * u128::from(rate_bps);
        self.at_ns = self.at_ns.max(now_ns);
        self.spent = self.spent.saturating_sub(earned);
        let spent = self.spent + u128::from(bytes) * 8 * SCALE;
        let within = spent <= u128::from(rate_bps) * u128::from(depth_ns);
        if within {
            self.spent = spent;
        }
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_of_the_depth_passes_and_then_the_rate() {
        let mut share = Share::default();
        let mut take = |now_ns| share.take(now_ns, 1_000_000, 8_000_000, 20 * SECOND);
        assert_eq!((0..30).filter(|_| take(0)).count(), 20);
        assert!(!take(SECOND - 1));
        assert!(take(SECOND));
        assert!(!take(SECOND));
        assert_eq!((0..30).filter(|_| take(1000 * SECOND)).count(), 20, "no more than the depth");
    }

    #[test]
    fn what_does_not_fit_costs_nothing() {
        let mut share = Share::default();
        assert!(!share.take(0, u64::MAX, u64::MAX, 1));
        assert!(share.take(0, 1000, 8_000_000, SECOND));
        assert!(!share.take(0, 1, 0, u64::MAX));
    }
}
