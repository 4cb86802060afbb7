//! How long a source waits before it retries: exponential, jittered, reproducible.
use std::time::Duration;

/// Waits between tries. The wait before try `n` is drawn from the upper half of `min(base * 2^n,
/// cap)`, so that sources that lost one collector together do not come back together.
///
/// Pure: the same seed and try give the same wait. Seed it with the source's instance number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Ceiling of the first wait.
    pub base: Duration,
    /// Ceiling of every wait.
    pub cap: Duration,
    /// Where the randomness comes from.
    pub seed: u64,
}

impl Backoff {
    /// 50 ms, doubled up to 2 s.
    pub fn new(seed: u64) -> Self {
        Self { base: Duration::from_millis(50), cap: Duration::from_secs(2), seed }
    }

    /// The wait before try `attempt` (0 after the first failure; begin again at 0 once a session
    /// was Ready). Never shorter than `retry_after`, the peer's own demand; the jitter is added
    /// to it.
    pub fn delay(&self, attempt: u32, retry_after: Duration) -> Duration {
        let doubled = self.base.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX));
        let half = doubled.min(self.cap) / 2;
        let jitter = half.mul_f64(unit(self.seed ^ u64::from(attempt)));
        if retry_after.is_zero() { half + jitter } else { retry_after + jitter }
    }
}

/// A number in 0..1 from `seed` (SplitMix64).
fn unit(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn waits_stay_in_the_upper_half_and_repeat(seed: u64, attempt: u32) {
            let backoff = Backoff::new(seed);
            let wait = backoff.delay(attempt, Duration::ZERO);
            let ceiling_ms = (50_u64 << attempt.min(6)).min(2_000);
            prop_assert!(wait >= Duration::from_millis(ceiling_ms / 2), "{wait:?}");
            prop_assert!(wait <= Duration::from_millis(ceiling_ms), "{wait:?}");
            prop_assert_eq!(wait, backoff.delay(attempt, Duration::ZERO));
        }

        #[test]
        fn the_peers_demand_is_kept(seed: u64, attempt in 0_u32..40, demand_ms in 1_u64..100_000) {
            let demand = Duration::from_millis(demand_ms);
            let wait = Backoff::new(seed).delay(attempt, demand);
            prop_assert!(wait >= demand && wait <= demand + Duration::from_secs(1));
        }
    }

    #[test]
    fn a_thousand_sources_spread_out() {
        let mut waits: Vec<Duration> =
            (0..1_000).map(|seed| Backoff::new(seed).delay(10, Duration::ZERO)).collect();
        waits.sort();
        let crowd = waits.windows(20).map(|w| w[19] - w[0]).min().unwrap();
        assert!(crowd > Duration::from_millis(2), "20 sources within {crowd:?}");
    }
}
