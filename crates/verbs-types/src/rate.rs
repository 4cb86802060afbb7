//! Rate limits of queue pairs, and the token bucket that keeps them.
//!
//! The bucket counts a credit in bits times 10^9, so that a rate in bits a second times nanoseconds
//! is earned without rounding and nothing drifts. It is not a time: the rate may change while
//! something is owed, and the rest of it is then earned at the new rate.
//!
//! A thread that is late must not cost the queue pair its rate, and a pause must not be followed by
//! a flood. So the credit has two bounds: a small one after a pause, and a large one while there
//! was always something to send.

/// Parts of a bit that are counted.
const SCALE: i128 = 1_000_000_000;
/// Bytes that may leave at once after a pause, at any rate: a batch for segmentation offload.
const MIN_BURST_BYTES: u64 = 64 << 10;
/// At fast rates, the bytes of this time may leave at once after a pause.
const BURST_MS: u64 = 1;
/// A queue that was not empty may catch up this time: a busy machine delays a thread so long.
const BACKLOG_MS: u64 = 50;
/// A queue that was empty for a shorter time did not pause: its thread was late.
const PAUSE_NS: u64 = 10_000_000;

/// Rates that a device can keep ([`RateRange::check`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRange {
    /// The lowest rate, bits a second.
    pub min_bps: u64,
    /// The highest rate, bits a second.
    pub max_bps: u64,
    /// Rates are rounded down to a multiple of this, bits a second.
    pub step_bps: u64,
    /// Bytes that a packet of a WRITE counts besides its payload; 0 where there are no packets.
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
        Err(RateError::OutOfRange { asked_bps, min_bps: self.min_bps, max_bps: self.max_bps })
    }
}

/// A limit that `Qp::set_rate` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Bits a second, headers included.
    pub rate_bps: u64,
    /// The most bytes that leave at once, whatever was missed; at least a packet leaves. `None` lets a late thread catch
    /// up as [`Flow::new`] says. For a rate that was granted: what leaves at once waits in the queue of a slower link.
    pub max_burst_bytes: Option<u64>,
}

impl RateLimit {
    /// Returns a limit of which a late thread may catch up what it has missed.
    pub const fn new(rate_bps: u64) -> Self {
        Self { rate_bps, max_burst_bytes: None }
    }

    /// Returns the same limit, of which so many bytes leave at once at most.
    #[must_use]
    pub const fn with_max_burst(self, bytes: u64) -> Self {
        Self { max_burst_bytes: Some(bytes), ..self }
    }
}

/// What became of the packets that a queue pair has sent since it was made, in bytes of payload; a packet that is not
/// full may count as a full one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// What the peer has acknowledged.
    pub acknowledged_bytes: u64,
    /// What was sent again because it was lost.
    pub resent_bytes: u64,
}

/// `Qp::set_rate` failed; the limit is as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// The device or provider named cannot limit the rate of a queue pair (see `Caps::rate`).
    #[error("{0} cannot limit the rate of a queue pair")]
    Unsupported(String),
    /// The device cannot keep this rate.
    #[error("rate of {asked_bps} bit/s is out of range: {min_bps} to {max_bps} bit/s")]
    OutOfRange {
        /// The requested rate.
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
        /// The system's error.
        reason: String,
    },
}

/// A token bucket. A fresh one allows one burst.
#[derive(Debug)]
pub struct TokenBucket {
    /// Negative: what is owed.
    credit: i128,
    /// The time up to which the credit was earned.
    at_ns: u64,
    since: Since,
}

/// What happened since the credit was earned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// There was always something to send.
    Backlog,
    /// The queue was empty.
    Empty,
    /// The limit was set.
    Set,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self { credit: i128::MAX, at_ns: 0, since: Since::Set }
    }
}

/// How fast a credit is earned, and how much of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bits a second.
    pub rate_bps: u64,
    /// Bytes that may leave at once after a pause.
    pub burst_bytes: u64,
    /// Bytes that may leave at once when the queue was not empty all the time; at least a burst.
    pub backlog_bytes: u64,
}

impl Flow {
    /// Returns the flow of a rate limit: after a pause at most 64 KiB leave at once, or the bytes of
    /// a millisecond at this rate; from a queue that was not empty, at most the bytes of 50
    /// milliseconds; and never more than the limit's own bound.
    pub fn new(limit: RateLimit) -> Self {
        let RateLimit { rate_bps, max_burst_bytes } = limit;
        let bytes_per_ms = rate_bps / 8 / 1000;
        let most = max_burst_bytes.unwrap_or(u64::MAX).max(1);
        Self {
            rate_bps,
            burst_bytes: (bytes_per_ms * BURST_MS).max(MIN_BURST_BYTES).min(most),
            backlog_bytes: (bytes_per_ms * BACKLOG_MS).max(MIN_BURST_BYTES).min(most),
        }
    }
}

impl TokenBucket {
    /// Returns whether a packet may leave now: the last one of a burst may begin with a single bit
    /// left.
    pub fn may_send(&mut self, now_ns: u64, flow: Flow) -> bool {
        self.earn(now_ns, flow);
        self.credit > 0
    }

    /// Returns the time from which a packet may leave, if the rate stays the same.
    pub fn opens_ns(&self, flow: Flow) -> u64 {
        let missing = u128::try_from(1 - self.credit).unwrap_or(0);
        let wait_ns = missing.div_ceil(flow.rate_bps.max(1).into());
        self.at_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }

    /// Takes the bytes of a packet that leaves.
    pub fn take(&mut self, now_ns: u64, bytes: u64, flow: Flow) {
        self.earn(now_ns, flow);
        self.credit = self.credit.saturating_sub(scaled_bits(bytes));
    }

    /// Notes that the queue was empty and no longer is. A pause forfeits credit beyond a burst.
    pub fn resume(&mut self) {
        if self.since == Since::Backlog {
            self.since = Since::Empty;
        }
    }

    /// Notes that the limit was set again: the credit beyond a burst is lost.
    pub fn restart(&mut self) {
        self.since = Since::Set;
    }

    fn earn(&mut self, now_ns: u64, flow: Flow) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        let most = match self.since {
            Since::Backlog => flow.backlog_bytes,
            Since::Empty if elapsed_ns <= PAUSE_NS => flow.backlog_bytes,
            Since::Empty | Since::Set => flow.burst_bytes,
        };
        let credit = self.credit.saturating_add(elapsed_ns.saturating_mul(flow.rate_bps).into());
        self.credit = credit.min(scaled_bits(most));
        self.at_ns = self.at_ns.max(now_ns);
        self.since = Since::Backlog;
    }
}

fn scaled_bits(bytes: u64) -> i128 {
    i128::from(bytes) * 8 * SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn flow(rate_bps: u64) -> Flow {
        Flow { rate_bps, burst_bytes: 10_000, backlog_bytes: 10_000 }
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
        // And the reverse: what was sent fast is owed at the slow rate.
        let mut bucket = filled(0, fast);
        bucket.take(0, 1000, fast);
        assert_eq!(bucket.opens_ns(slow), 8_000_001);
    }

    #[test]
    fn no_value_overflows() {
        let mut bucket = TokenBucket::default();
        let huge = Flow { rate_bps: u64::MAX, burst_bytes: u64::MAX, backlog_bytes: u64::MAX };
        bucket.take(u64::MAX, u64::MAX, huge);
        assert!(bucket.opens_ns(huge) >= bucket.at_ns);
        let nothing = Flow { rate_bps: 0, burst_bytes: 0, backlog_bytes: 0 };
        bucket.take(u64::MAX, u64::MAX, nothing);
        assert_eq!(bucket.opens_ns(nothing), u64::MAX);
        assert!(!bucket.may_send(u64::MAX, nothing));
    }

    /// Returns the number of bytes that leave within a second when the thread comes `late_ns` after
    /// the bucket opened.
    fn sent_by_a_late_thread(flow: Flow, late_ns: u64) -> u64 {
        let mut bucket = filled(0, flow);
        let (mut now_ns, mut bytes) = (0, 0);
        while now_ns < 1_000_000_000 {
            now_ns = bucket.opens_ns(flow) + late_ns;
            while bucket.may_send(now_ns, flow) {
                bucket.take(now_ns, 1500, flow);
                bytes += 1500;
            }
        }
        bytes
    }

    #[test]
    fn a_late_thread_costs_a_queue_that_is_never_empty_nothing() {
        for rate_bps in [1_000_000, 1_000_000_000, 100_000_000_000] {
            for late_ns in [60_000, 1_000_000, 40_000_000] {
                let sent = sent_by_a_late_thread(Flow::new(RateLimit::new(rate_bps)), late_ns);
                let (want, last) =
                    (rate_bps / 8, rate_bps / 8 * (late_ns + 12_000_000) / 1_000_000_000);
                assert!(
                    sent + 1500 >= want && sent <= want + last + 1500,
                    "{rate_bps} bit/s, {late_ns} ns late: {sent} of {want} bytes"
                );
            }
        }
        let sent = sent_by_a_late_thread(Flow::new(RateLimit::new(1_000_000_000)), 100_000_000);
        assert!(sent < 80_000_000, "50 of each 100 ms: {sent}");
    }

    fn at_once(bucket: &mut TokenBucket, now_ns: u64, flow: Flow) -> u64 {
        let mut bytes = 0;
        while bucket.may_send(now_ns, flow) {
            bucket.take(now_ns, 1000, flow);
            bytes += 1000;
        }
        bytes
    }

    #[test]
    fn a_pause_and_another_rate_give_a_burst_and_no_more() {
        let flow = Flow::new(RateLimit::new(8_000_000_000));
        let mut bucket = TokenBucket::default();
        assert_eq!(at_once(&mut bucket, 7, flow), 1_000_000, "fresh");
        bucket.resume();
        assert_eq!(at_once(&mut bucket, 5_000_007, flow), 5_000_000, "late");
        bucket.resume();
        assert_eq!(at_once(&mut bucket, 1_000_000_007, flow), 1_000_000, "paused");
        assert_eq!(at_once(&mut bucket, 2_000_000_007, flow), 50_000_000, "backlog");
        bucket.restart();
        assert_eq!(at_once(&mut bucket, 3_000_000_007, flow), 1_000_000, "new rate");
        assert!(
            bucket.opens_ns(Flow::new(RateLimit::new(8_000_000))) <= 3_000_000_008,
            "nothing fast is owed"
        );
    }

    #[test]
    fn a_fast_rate_may_catch_up_a_millisecond_and_a_slow_one_a_batch() {
        assert_eq!(Flow::new(RateLimit::new(1_000_000)).burst_bytes, 64 << 10);
        assert_eq!(Flow::new(RateLimit::new(8_000_000_000)).burst_bytes, 1_000_000);
    }

    /// Whatever a late thread has missed, and whatever the rate was before: what leaves at once fits the queue that the
    /// bound was made for. The last packet may begin with a single bit left.
    #[test]
    fn a_bound_holds_for_a_backlog_too_and_a_packet_always_leaves() {
        for rate_bps in [1_000_000, 500_000_000, 10_000_000_000] {
            for bound in [0, 1, 4096, 64 << 10] {
                let flow = Flow::new(RateLimit::new(rate_bps).with_max_burst(bound));
                let mut bucket = TokenBucket::default();
                for second in 1..5 {
                    let sent = at_once(&mut bucket, second * 1_000_000_000, flow);
                    let whole = bound.max(1).div_ceil(1000) * 1000;
                    assert_eq!(sent, whole, "{rate_bps} bit/s, at most {bound}");
                    match second {
                        1 => bucket.resume(),
                        2 => bucket.restart(),
                        _ => {}
                    }
                }
            }
        }
        let late = sent_by_a_late_thread(
            Flow::new(RateLimit::new(400_000_000).with_max_burst(64 << 10)),
            1_000_000,
        );
        assert!(late + 1500 >= 50_000_000, "1.3 ms may be caught up on: {late}");
    }

    #[test]
    fn a_rate_out_of_range_is_refused_with_the_range() {
        let range =
            RateRange { min_bps: 1000, max_bps: 9000, step_bps: 1, packet_overhead_bytes: 0 };
        assert_eq!(range.check(1000), Ok(()));
        assert_eq!(range.check(9000), Ok(()));
        for asked in [0, 999, 9001] {
            let error = range.check(asked).unwrap_err().to_string();
            assert_eq!(error, format!("rate of {asked} bit/s is out of range: 1000 to 9000 bit/s"));
        }
    }
}
