//! Token bucket: what was sent and not yet earned back.
//!
//! The debt is kept in bits times 10^9, so that a rate in bits a second times nanoseconds is earned
//! without rounding and nothing drifts. It is no time: the rate may change while there is a debt, and
//! what is left of it is then earned at the new one.

/// Bits are counted in parts of this.
const SCALE: u64 = 1_000_000_000;

/// See the module. A fresh bucket has no debt.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    debt: u64,
    /// Up to when the debt was earned.
    at_ns: u64,
}

/// How fast it is earned, and how much may be owed when a packet leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) rate_bps: u64,
    pub(crate) burst_bytes: u64,
}

impl Flow {
    /// The largest debt with which a packet may leave: the last one of a burst may begin with a
    /// single byte left.
    fn most(self) -> u64 {
        let bits = self.burst_bytes.saturating_mul(8);
        bits.saturating_mul(SCALE).saturating_sub(1)
    }
}

impl Bucket {
    /// Whether a packet may leave.
    pub(crate) fn may_send(&mut self, now_ns: u64, flow: Flow) -> bool {
        self.earn(now_ns, flow);
        self.debt <= flow.most()
    }

    /// From when on a packet may leave, if the rate stays as it is.
    pub(crate) fn opens_ns(&self, flow: Flow) -> u64 {
        let too_much = self.debt.saturating_sub(flow.most());
        let wait_ns = too_much.div_ceil(flow.rate_bps.max(1));
        self.at_ns.saturating_add(wait_ns)
    }

    /// A packet leaves.
    pub(crate) fn take(&mut self, now_ns: u64, bytes: u64, flow: Flow) {
        self.earn(now_ns, flow);
        let bits = bytes.saturating_mul(8);
        self.debt = self.debt.saturating_add(bits.saturating_mul(SCALE));
    }

    fn earn(&mut self, now_ns: u64, flow: Flow) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        let earned = elapsed_ns.saturating_mul(flow.rate_bps);
        self.debt = self.debt.saturating_sub(earned);
        self.at_ns = self.at_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn flow(rate_bps: u64) -> Flow {
        Flow {
            rate_bps,
            burst_bytes: 10_000,
        }
    }

    /// Fills the burst at `now_ns` and one packet more.
    fn filled(now_ns: u64, rate: Flow) -> Bucket {
        let mut bucket = Bucket::default();
        while bucket.may_send(now_ns, rate) {
            bucket.take(now_ns, 1000, rate);
        }
        bucket
    }

    #[test]
    fn a_packet_opens_the_bucket_when_a_byte_of_the_burst_is_left() {
        let slow = flow(8_000_000);
        let bucket = filled(500, slow);
        // 10,000 bytes are owed; the first bit of them is earned in 125 ns, rounded up.
        assert_eq!(bucket.opens_ns(slow), 501);
        let mut bucket = bucket;
        assert!(!bucket.may_send(500, slow));
        assert!(bucket.may_send(501, slow));
        bucket.take(501, 1000, slow);
        // 1000 bytes at a byte a microsecond.
        assert_eq!(bucket.opens_ns(slow), 501 + 1_000_000);
    }

    #[test]
    fn a_debt_is_earned_at_the_rate_of_the_day() {
        let (slow, fast) = (flow(1_000_000), flow(10_000_000_000));
        let mut bucket = filled(0, slow);
        bucket.take(0, 1000, slow);
        assert_eq!(bucket.opens_ns(slow), 8_000_001, "8,000 bits at 1 Mbit/s");
        // All of it, 11,000 bytes, takes 8.8 us at 10 Gbit/s, and not what was left at 1 Mbit/s.
        assert!(bucket.opens_ns(fast) <= 801);
        assert!(bucket.may_send(801, fast));
        bucket.take(801, 1000, fast);
        assert!(bucket.opens_ns(fast) < 2_000);
        // And the other way: what was sent fast is owed at the slow rate.
        let mut bucket = filled(0, fast);
        bucket.take(0, 1000, fast);
        assert_eq!(bucket.opens_ns(slow), 8_000_001);
    }

    #[test]
    fn no_value_overflows() {
        let mut bucket = Bucket::default();
        let huge = Flow {
            rate_bps: u64::MAX,
            burst_bytes: u64::MAX,
        };
        bucket.take(u64::MAX, u64::MAX, huge);
        assert!(bucket.opens_ns(huge) >= bucket.at_ns);
        let nothing = Flow {
            rate_bps: 0,
            burst_bytes: 0,
        };
        bucket.take(u64::MAX, u64::MAX, nothing);
        assert_eq!(bucket.opens_ns(nothing), u64::MAX);
        assert!(!bucket.may_send(u64::MAX, nothing));
    }
}
