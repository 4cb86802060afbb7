//! The most that an application is served in a time, whatever its share and its rate are, and however little others want.
use super::{ApplicationId, Scheduler};
use std::time::Duration;

/// Time whose bytes may be saved up, as the agent may be late by some of it; two chunks at least.
const BURST_S: f64 = 10e-3;
const BURST_CHUNKS: u64 = 2;

/// A budget that grows with time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    bytes_per_s: f64,
    /// What may be served now, in bytes; below 0 after a chunk that it did not hold.
    budget: f64,
    burst: f64,
}

impl Most {
    pub(super) fn refill(&mut self, passed: Duration) {
        let given = self.bytes_per_s * passed.as_secs_f64();
        self.budget = (self.budget + given).min(self.burst);
    }

    #[inline]
    pub(super) fn may_go(&self) -> bool {
        self.budget > 0.0
    }

    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        self.budget -= bytes as f64;
    }

    /// Returns the budget, and the bytes a second by which it grows.
    pub(super) const fn budget(&self) -> (f64, f64) {
        (self.budget, self.bytes_per_s)
    }
}

impl Scheduler {
    /// Serves an application no more than so many bytes a second from now on, or as much as its share and rate give.
    pub fn set_most(&mut self, id: ApplicationId, bytes_per_s: Option<f64>) {
        let chunk = self.chunk;
        let most = &mut self.application(id.0).most;
        let before = most.is_some();
        *most = bytes_per_s.map(|bytes_per_s| {
            let burst = (bytes_per_s * BURST_S).max((BURST_CHUNKS * chunk) as f64);
            let budget = most.map_or(burst, |old| old.budget.min(burst));
            Most { bytes_per_s, budget, burst }
        });
        self.bounded = self.bounded + usize::from(bytes_per_s.is_some()) - usize::from(before);
    }

    /// Returns whether [`Scheduler::refill`] must be told of time because of any of them.
    #[inline]
    #[must_use]
    pub const fn has_most(&self) -> bool {
        self.bounded > 0
    }
}
