//! A clock that drifts.

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// What it shows at the true time 0.
    pub(super) origin_ns: u64,
    /// How much it is too fast, in parts of 10^9.
    pub(super) drift_ppb: i64,
}

impl Clock {
    pub(super) fn local_ns(self, true_ns: u64) -> u64 {
        let drift = i128::from(true_ns) * i128::from(self.drift_ppb) / 1_000_000_000;
        let local = i128::from(self.origin_ns) + i128::from(true_ns) + drift;
        u64::try_from(local).unwrap_or(u64::MAX)
    }

    /// Returns the first true time at which it shows this, or more.
    pub(super) fn true_ns(self, local_ns: u64) -> u64 {
        let since = i128::from(local_ns) - i128::from(self.origin_ns);
        let guess = since * 1_000_000_000 / (1_000_000_000 + i128::from(self.drift_ppb));
        let mut true_ns = u64::try_from(guess.max(0)).unwrap_or(u64::MAX);
        while true_ns > 0 && self.local_ns(true_ns - 1) >= local_ns {
            true_ns -= 1;
        }
        while self.local_ns(true_ns) < local_ns {
            true_ns += 1;
        }
        true_ns
    }
}
