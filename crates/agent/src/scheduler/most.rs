//! The most that an application is served in a time, whatever its share and its rate are, and however little others want.
use super::budget::Budget;
use super::{ApplicationId, Scheduler};
use std::time::Duration;

/// Time whose bytes may be saved up, as the agent may be late by some of it; two chunks at least.
const BURST_S: f64 = 10e-3;
const BURST_CHUNKS: u64 = 2;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    pub(super) budget: Budget,
    burst: f64,
}

impl Most {
    pub(super) fn refill(&mut self, passed: Duration) {
        self.budget.save(self.budget.gives(passed), self.burst);
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
            let bytes = most.map_or(burst, |old| old.budget.bytes.min(burst));
            Most { budget: Budget { bytes_per_s, bytes }, burst }
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
