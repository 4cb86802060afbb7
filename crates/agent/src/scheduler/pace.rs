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
    /// Something could not be saved up when time passed last.
    spills: bool,
}

/// Time whose bytes may be saved up.
const BURST_S: f64 = 1e-3;
/// Time whose bytes are saved up beyond that for who waits all the time: nobody is late but who serves him, whose processor
/// others have for a few turns of theirs.
const LATE_S: f64 = 20e-3;
/// Chunks that may be saved up at least.
const BURST_CHUNKS: u64 = 2;

impl Pace {
    /// At a rate of so many bytes a second; nothing is saved up yet.
    pub(super) fn new(old: Option<Self>, bytes_per_s: f64, chunk: u64) -> Self {
        let bytes_per_s = if bytes_per_s > 0.0 { bytes_per_s } else { 0.0 };
        let most = (bytes_per_s * BURST_S).max((BURST_CHUNKS * chunk) as f64);
        let budget = old.map_or(0.0, |old| old.budget.min(most + bytes_per_s * LATE_S));
        Self { bytes_per_s, budget, most, spills: false }
    }

    /// Adds what the rate gives in a time; returns what cannot be saved up of it, and of what was before.
    pub(super) fn refill(&mut self, passed: Duration, waits: Waits) -> f64 {
        let all = self.budget + self.bytes_per_s * passed.as_secs_f64();
        let most = match waits {
            Waits::Not => self.most,
            Waits::ForOthers => self.most.max(self.budget),
            Waits::ForUs => self.most + self.bytes_per_s * LATE_S,
        };
        self.budget = all.min(most);
        self.spills = all > most;
        all - self.budget
    }

    /// Returns what it will not save up of a second, as things are.
    fn leaves(&self) -> f64 {
        if self.spills { self.bytes_per_s } else { 0.0 }
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
}

/// What an application did all the time that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// It had nothing to send for a moment at least.
    Not,
    /// It waited for its rate, for its peer, or for the device.
    ForOthers,
    /// It could have been served.
    ForUs,
}

/// Returns after which time a chunk may go by a budget that grows so fast; `None` at a rate of 0.
fn until(budget: f64, bytes_per_s: f64) -> Option<Duration> {
    let seconds = ((1.0 - budget) / bytes_per_s).clamp(0.0, 1e6);
    (bytes_per_s > 0.0).then(|| Duration::from_secs_f64(seconds))
}

/// What applications leave of their rates that send to the same hosts: whoever of them has more to send may have it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pool {
    /// In bytes; below 0 after a chunk that it did not hold.
    spare: f64,
    /// What they leave in a second, as things are.
    leaves: f64,
    /// What may be saved up.
    most: f64,
}

impl Pool {
    /// Adds what one leaves; returns what nobody can have.
    fn add(&mut self, bytes: f64) -> f64 {
        let all = self.spare + bytes;
        self.spare = all.min(self.most);
        all - self.spare
    }

    #[inline]
    pub(super) fn may_go(&self) -> bool {
        self.spare > 0.0
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

    /// Serves what an application leaves of its rate, since it cannot save it up, to all others of which `first` is the
    /// first too, and to it what they leave, until that one is removed.
    pub fn set_pool(&mut self, id: ApplicationId, first: ApplicationId) {
        self.application(id.0).pool = Some(first.0);
        if self.pools.len() <= first.0 {
            self.pools.resize(first.0 + 1, Pool::default());
        }
        self.pools[first.0].most = (BURST_CHUNKS * self.chunk) as f64;
    }

    /// Forgets what was left to those of whom an application was the first, and that they were: the next one with its
    /// number is none of theirs.
    pub(super) fn end_pool(&mut self, first: usize) {
        if let Some(pool) = self.pools.get_mut(first) {
            *pool = Pool::default();
        }
        let all = self.applications.iter_mut().flatten();
        all.filter(|one| one.pool == Some(first)).for_each(|one| one.pool = None);
    }

    /// Takes what a chunk costs from the budget of its application, or from what others of its pool left.
    #[inline]
    pub(super) fn spend(&mut self, owner: usize, cost: u64) {
        let Some(application) = &mut self.applications[owner] else { return };
        let Some(pace) = &mut application.pace else { return };
        let pool = application.pool.filter(|_| !pace.may_go());
        match pool.and_then(|first| self.pools.get_mut(first)) {
            Some(pool) if pool.may_go() => pool.spare -= cost as f64,
            Some(_) | None => pace.spend(cost),
        }
    }

    /// Notes that time passed for those that have rates.
    pub fn refill(&mut self, passed: Duration) {
        self.pools.iter_mut().for_each(|pool| pool.leaves = 0.0);
        let mut lost = 0.0;
        for application in self.applications.iter_mut().flatten() {
            let Some(pace) = &mut application.pace else { continue };
            if application.waiting > 0 && !pace.may_go() {
                application.served.held_ns += passed.as_nanos() as u64;
            }
            let has_waited = application.waited == Some(application.served.emptied);
            application.waited = (application.waiting > 0).then_some(application.served.emptied);
            let waits = match has_waited {
                false => Waits::Not,
                true if application.is_behind || passed.as_secs_f64() > BURST_S => Waits::ForUs,
                true => Waits::ForOthers,
            };
            let left = pace.refill(passed, waits);
            let pool = application.pool.and_then(|first| self.pools.get_mut(first));
            let left = pool.map_or(left, |pool| {
                pool.leaves += pace.leaves();
                pool.add(left)
            });
            if application.is_behind {
                lost += left;
            }
        }
        self.count_behind(passed, lost);
    }

    /// Returns after which time somebody who waits for his rate may be served again.
    #[must_use]
    pub fn next_refill(&self) -> Option<Duration> {
        let active = self.active.iter().filter_map(|owner| self.applications[*owner].as_ref());
        let throttled = active.filter(|application| self.is_throttled(application));
        let waits = throttled.filter_map(|application| {
            let pool = self.pool_of(application).copied().unwrap_or_default();
            let by_pool = until(pool.spare, pool.leaves);
            let by_rate = application.pace.and_then(|pace| until(pace.budget, pace.bytes_per_s));
            by_pool.into_iter().chain(by_rate).min()
        });
        waits.min()
    }
}
