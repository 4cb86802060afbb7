//! What an application may be served in a time, where it has a rate.
use super::budget::Budget;
use super::{ApplicationId, Scheduler};
use std::time::Duration;

/// What a rate gives, and what of it is saved up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) budget: Budget,
    /// What it saves up while it does not wait, and what it always may.
    most: f64,
    least: f64,
    /// What may be saved up, by what it did while time passed last.
    holds: f64,
    /// Something could not be saved up then.
    spills: bool,
}

/// Time whose bytes may be saved up.
const BURST_S: f64 = 1e-3;
/// Time whose bytes are saved up beyond that for who waits all the time: nobody is late but who serves him, whose processor
/// others have for a few turns of theirs.
const LATE_S: f64 = 20e-3;
/// What is lost of a rate while its chunks fill the window: where the line is what all wait for, to catch up takes as long as the
/// line is faster than the rates, and short requests of others wait behind a full window all that time. A device that is
/// twice as fast catches up on two thirds.
const LOST_WHILE_FULL: f64 = 0.5;
/// Chunks that may be saved up at least.
const BURST_CHUNKS: u64 = 2;

impl Pace {
    /// At a rate of so many bytes a second; nothing is saved up yet.
    pub(super) fn new(old: Option<Self>, bytes_per_s: f64, chunk: u64) -> Self {
        let bytes_per_s = if bytes_per_s > 0.0 { bytes_per_s } else { 0.0 };
        let least = (BURST_CHUNKS * chunk) as f64;
        let most = (bytes_per_s * BURST_S).max(least);
        let bytes = old.map_or(0.0, |old| old.budget.bytes.min(most + bytes_per_s * LATE_S));
        let budget = Budget { bytes_per_s, bytes };
        Self { budget, most, least, holds: most, spills: false }
    }

    /// Adds what the rate gives in a time; returns what others may have: what cannot be saved up of it, and of what was before. What
    /// is lost to the device nobody may have.
    pub(super) fn refill(&mut self, passed: Duration, waits: Waits) -> f64 {
        let given = self.budget.gives(passed);
        let Budget { bytes_per_s, bytes } = self.budget;
        self.holds = match waits {
            Waits::Not => self.most,
            Waits::ForDevice => (bytes + (1.0 - LOST_WHILE_FULL) * given).max(self.least),
            Waits::ForOthers => self.most.max(bytes),
            Waits::ForUs => self.most + bytes_per_s * LATE_S,
        };
        let left = self.save(given);
        if waits == Waits::ForDevice {
            self.spills = false;
            return 0.0;
        }
        self.spills = left > 0.0;
        left
    }

    /// Adds so many bytes; returns what cannot be saved up.
    fn save(&mut self, bytes: f64) -> f64 {
        self.budget.save(bytes, self.holds)
    }

    /// Returns what it will not save up of a second, as things are.
    fn leaves(&self) -> f64 {
        if self.spills { self.budget.bytes_per_s } else { 0.0 }
    }
}

/// What an application did all the time that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// It had nothing to send for a moment at least.
    Not,
    /// The device had all of it that it may have.
    ForDevice,
    /// It waited for its rate, or for its peer.
    ForOthers,
    /// It could have been served.
    ForUs,
}

/// What applications leave of their rates that send to the same hosts: it is for those of them who have something to send, by
/// their shares. Who comes first must not have it, as requests cost some a hundredth of what they cost others.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pool {
    /// In bytes.
    spare: f64,
    /// What they leave in a second, as things are.
    leaves: f64,
    /// What may be saved up.
    most: f64,
    /// The shares of those who have something to send, and what is for each of these.
    shares: f64,
    each: f64,
}

impl Pool {
    /// Returns what is for each of the shares, of so many bytes.
    fn part(&self, bytes: f64) -> f64 {
        if self.shares > 0.0 { bytes / self.shares } else { 0.0 }
    }

    /// Keeps what may be saved up; returns the rest.
    fn keep(&mut self) -> f64 {
        let all = self.spare;
        self.spare = all.min(self.most);
        all - self.spare
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

    /// Notes that time passed for those that have rates.
    pub fn refill(&mut self, passed: Duration) {
        self.pools.iter_mut().for_each(|pool| (pool.leaves, pool.shares) = (0.0, 0.0));
        // Of what those leave who could have been served more.
        let (mut lost, mut behind_left) = (0.0, 0.0);
        for application in self.applications.iter_mut().flatten() {
            if let Some(most) = &mut application.most {
                most.refill(passed);
            }
            let Some(pace) = &mut application.pace else { continue };
            if application.waiting > 0 && !pace.budget.may_go() {
                application.served.held_ns += passed.as_nanos() as u64;
            }
            let has_waited = application.waited == Some(application.served.emptied);
            application.waited = (application.waiting > 0).then_some(application.served.emptied);
            let waits = match has_waited {
                false => Waits::Not,
                true if application.is_behind || passed.as_secs_f64() > BURST_S => Waits::ForUs,
                true if application.is_full => Waits::ForDevice,
                true => Waits::ForOthers,
            };
            let left = pace.refill(passed, waits);
            let of_behind = if application.is_behind { left } else { 0.0 };
            match application.pool.and_then(|first| self.pools.get_mut(first)) {
                Some(pool) => {
                    pool.spare += left;
                    pool.leaves += pace.leaves();
                    let shares = if application.waiting > 0 { application.share } else { 0 };
                    pool.shares += shares as f64;
                    behind_left += of_behind;
                }
                None => lost += of_behind,
            }
        }
        self.share_out();
        let rest: f64 = self.pools.iter_mut().map(Pool::keep).sum();
        self.count_behind(passed, lost + rest.min(behind_left));
    }

    /// Gives what is left in pools to those who have something to send; what they cannot save up stays there.
    fn share_out(&mut self) {
        let mut any = false;
        for pool in &mut self.pools {
            pool.each = pool.part(pool.spare);
            if pool.each > 0.0 {
                (pool.spare, any) = (0.0, true);
            }
        }
        // Mostly nobody leaves anything.
        if !any {
            return;
        }
        for application in self.applications.iter_mut().flatten() {
            let pool = application.pool.and_then(|first| self.pools.get_mut(first));
            if let (Some(pool), Some(pace), true) =
                (pool, &mut application.pace, application.waiting > 0)
            {
                pool.spare += pace.save(pool.each * application.share as f64);
            }
        }
    }

    /// Returns after which time somebody who waits for his rate may be served again.
    #[must_use]
    pub fn next_refill(&self) -> Option<Duration> {
        let active = self.active.iter().filter_map(|owner| self.applications[*owner].as_ref());
        let throttled = active.filter(|application| application.is_throttled());
        let waits = throttled.filter_map(|application| {
            let by_most =
                application.most.map_or(Some(Duration::ZERO), |most| most.budget.until(0.0));
            let by_rate = application.pace.map_or(Some(Duration::ZERO), |pace| {
                let pool = application.pool.and_then(|first| self.pools.get(first));
                let part =
                    pool.map_or(0.0, |pool| pool.part(pool.leaves) * application.share as f64);
                pace.budget.until(part)
            });
            by_rate.zip(by_most).map(|(by_rate, by_most)| by_rate.max(by_most))
        });
        waits.min()
    }
}
