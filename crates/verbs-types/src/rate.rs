//! Rate limits of queue pairs, and the token bucket that keeps them.
//!
//! The bucket counts a debt: what was sent and not yet earned back. The debt is kept in bits times
//! 10^9, so that a rate in bits a second times nanoseconds is earned without rounding and nothing
//! drifts. It is not a time: the rate may change while there is a debt, and the rest of it is then
//! earned at the new rate.

/// Bits are counted in parts of this.
const SCALE: u64 = 1_000_000_000;
/// Bytes that may leave at once after a pause, at any rate: a batch for segmentation offload.
const LEAST_BURST_BYTES: u64 = 64 << 10;
/// Fast rates may catch up this much time after a pause, as a thread that sleeps wakes late.
const BURST_MS: u64 = 1;

/// Rates that a device can keep ([`RateRange::check`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRange {
    /// The lowest rate, bits a second.
    pub min_bps: u64,
    /// The highest rate, bits a second.
    pub max_bps: u64,
    /// Rates are rounded down to a multiple of this, bits a second.
    pub step_bps: u64,
    /// Bytes that a packet of a WRITE counts beside its payload; 0 where there are no packets.
    pub packet_overhead_bytes: u32,
}

impl RateRange {
    /// Checks that a rate can be kept.
    ///
    /// # Errors
    /// [`RateError::OutOfRange`] with the range.
    pub fn check(&self, asked_bps: u64) -> Result<(), RateError> {
        if (self.min_bps..=self.max_bps).contains(&asked_bps) {
            return Ok(());
        }
        Err(RateError::OutOfRange {
            asked_bps,
            min_bps: self.min_bps,
            max_bps: self.max_bps,
        })
    }
}

/// `Qp::set_rate` failed; the limit is as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// The device cannot limit the rate of a queue pair; `Caps::rate` says so beforehand.
    #[error("{device} cannot limit the rate of a queue pair")]
    Unsupported {
        /// The device or its provider.
        device: String,
    },
    /// The device cannot keep this rate.
    #[error("rate of {asked_bps} bit/s is out of range: {min_bps} to {max_bps} bit/s")]
    OutOfRange {
        /// The rate asked for.
        asked_bps: u64,
        /// The lowest rate.
        min_bps: u64,
        /// The highest rate.
        max_bps: u64,
    },
    /// The device refused.
    #[error("queue pair {qpn}: the device refused the rate limit: {reason}")]
    Device {
        /// The queue pair.
        qpn: u32,
        /// What the system said.
        reason: String,
    },
}

/// A token bucket. A fresh one has no debt.
#[derive(Debug, Default)]
pub struct TokenBucket {
    debt: u64,
    /// Up to when the debt was earned.
    at_ns: u64,
}

/// How fast a debt is earned, and how much may be owed when a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bits a second.
    pub rate_bps: u64,
    /// Bytes that may leave at once after a pause.
    pub burst_bytes: u64,
}

impl Flow {
    /// Returns the flow of a rate limit that an application sets: a pause lets at most 64 KiB leave
    /// at once, or what the rate gives in a millisecond.
    #[must_use]
    pub fn of_rate(rate_bps: u64) -> Flow {
        Flow {
            rate_bps,
            burst_bytes: (rate_bps / 8 / 1000 * BURST_MS).max(LEAST_BURST_BYTES),
        }
    }

    /// The largest debt with which a packet may leave: the last one of a burst may begin with a
    /// single byte left.
    fn most(self) -> u64 {
        let bits = self.burst_bytes.saturating_mul(8);
        bits.saturating_mul(SCALE).saturating_sub(1)
    }
}

impl TokenBucket {
    /// Whether a packet may leave now.
    pub fn may_send(&mut self, now_ns: u64, flow: Flow) -> bool {
        self.earn(now_ns, flow);
        self.debt <= flow.most()
    }

    /// Returns the time from which a packet may leave, if the rate stays the same.
    #[must_use]
    pub fn opens_ns(&self, flow: Flow) -> u64 {
        let too_much = self.debt.saturating_sub(flow.most());
        let wait_ns = too_much.div_ceil(flow.rate_bps.max(1));
        self.at_ns.saturating_add(wait_ns)
    }

    /// Adds the bytes of a packet that leaves to the debt.
    pub fn take(&mut self, now_ns: u64, bytes: u64, flow: Flow) {
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
    fn filled(now_ns: u64, rate: Flow) -> TokenBucket {
        let mut bucket = TokenBucket::default();
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
        let mut bucket = TokenBucket::default();
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

    #[test]
    fn a_fast_rate_may_catch_up_a_millisecond_and_a_slow_one_a_batch() {
        assert_eq!(Flow::of_rate(1_000_000).burst_bytes, 64 << 10);
        assert_eq!(Flow::of_rate(8_000_000_000).burst_bytes, 1_000_000);
    }

    #[test]
    fn a_rate_out_of_range_is_refused_with_the_range() {
        let range = RateRange {
            min_bps: 1000,
            max_bps: 9000,
            step_bps: 1,
            packet_overhead_bytes: 0,
        };
        assert_eq!(range.check(1000), Ok(()));
        assert_eq!(range.check(9000), Ok(()));
        for asked in [0, 999, 9001] {
            let error = range.check(asked).unwrap_err().to_string();
            let text = format!("rate of {asked} bit/s is out of range: 1000 to 9000 bit/s");
            assert_eq!(error, text);
        }
    }
}
