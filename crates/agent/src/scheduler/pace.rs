//! What an application may be served in a time, where it has a rate.
use super::{ApplicationId, Scheduler};
use std::time::Duration;

/// A budget that grows with time. The scheduler reads no clock: it is told what passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    bytes_per_s: f64,
    /// What may be served now, in bytes; below 0 after a chunk that it did not hold.
    budget: f64,
    most: f64,
}

/// Time whose bytes may be saved up.
const BURST_S: f64 = 1e-3;
/// Chunks that may be saved up at least.
const BURST_CHUNKS: u64 = 2;

impl Pace {
    /// At a rate of so many bytes a second; nothing is saved up yet.
    pub(super) fn new(old: Option<Self>, bytes_per_s: f64, chunk: u64) -> Self {
        let bytes_per_s = if bytes_per_s > 0.0 { bytes_per_s } else { 0.0 };
        let most = (bytes_per_s * BURST_S).max((BURST_CHUNKS * chunk) as f64);
        let budget = old.map_or(0.0, |old| old.budget.min(most));
        Self { bytes_per_s, budget, most }
    }

    pub(super) fn refill(&mut self, passed: Duration) {
        self.budget = (self.budget + self.bytes_per_s * passed.as_secs_f64()).min(self.most);
    }

    /// Whether the next chunk may go. What it costs beyond the budget is owed.
    #[inline]
    pub(super) fn may_go(&self) -> bool {
        self.budget > 0.0
    }

    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        self.budget -= bytes as f64;
    }

    /// Returns after which time the next chunk may go; `None` at a rate of 0.
    pub(super) fn until(&self) -> Option<Duration> {
        let seconds = ((1.0 - self.budget) / self.bytes_per_s).clamp(0.0, 1e6);
        (self.bytes_per_s > 0.0).then(|| Duration::from_secs_f64(seconds))
    }
}

impl Scheduler {
    /// Serves an application no more than so many bytes a second from now on, and what it saves up: two chunks, or
    /// what a millisecond gives.
    pub fn set_rate(&mut self, id: ApplicationId, bytes_per_s: f64) {
        let chunk = self.chunk;
        let application = self.application(id.0);
        application.pace = Some(Pace::new(application.pace, bytes_per_s, chunk));
    }

    /// Serves an application without a rate from now on.
    pub fn clear_rate(&mut self, id: ApplicationId) {
        self.application(id.0).pace = None;
    }

    /// Notes that time passed for those that have rates.
    pub fn refill(&mut self, passed: Duration) {
        for application in self.applications.iter_mut().flatten() {
            let Some(pace) = &mut application.pace else { continue };
            if application.waiting > 0 && !pace.may_go() {
                application.served.held_ns += passed.as_nanos() as u64;
            }
            pace.refill(passed);
        }
    }

    /// Returns after which time somebody who waits for his rate may be served again.
    #[must_use]
    pub fn next_refill(&self) -> Option<Duration> {
        let active = self.active.iter().filter_map(|owner| self.applications[*owner].as_ref());
        let paces = active.filter_map(|application| application.pace);
        paces.filter(|pace| !pace.may_go()).filter_map(|pace| pace.until()).min()
    }
}
