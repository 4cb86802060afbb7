//! What an application asks for, as other hosts are told.
use crate::scheduler::Served;
use std::time::Duration;

/// How often demands are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// What an application that asks for less than it gets may ask for next, beside what it did.
const MARGIN: f64 = 1.25;
/// Who was held by his rate for more than one part of so many of a time asks for more than he gets: who has one
/// request at a time never has all of them waiting.
const HELD: u32 = 10;
/// By how much a demand must differ to be told, and by which part of what the host can send: each time costs rounds, and
/// what one leaves of his rate others have anyway.
const NEWS: f64 = 0.1;
const NEWS_PART: f64 = 0.01;
/// Least demand, in bytes a second, and in parts of what the host can send where that is less: a request that comes now
/// and then is sent at once.
const LEAST_BYTES_PER_S: f64 = 1e6;
const LEAST_PART: f64 = 1.0 / 32.0;

/// What an application asked for when it was last looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    least: f64,
    /// By so many bytes a second it must differ to be told.
    news: f64,
    seen: Served,
    /// As it was told, in bytes a second; nothing: more than it gets.
    told: Option<f64>,
    /// The most that is told, whatever it asks for.
    most: Option<f64>,
}

impl Demand {
    /// Returns that of who comes, and has sent nothing, at a host that can send so much.
    pub(super) fn new(send_bytes_per_s: Option<u64>) -> Self {
        let part = send_bytes_per_s.map_or(f64::INFINITY, |send| LEAST_PART * send as f64);
        let least = LEAST_BYTES_PER_S.min(part);
        let news = send_bytes_per_s.map_or(0.0, |send| NEWS_PART * send as f64);
        Self { least, news, seen: Served::default(), told: Some(least), most: None }
    }

    /// Returns whether a demand differs too little from what was told to be told.
    fn is_near(&self, told: f64, new: f64) -> bool {
        (new - told).abs() <= (NEWS * told).max(self.news)
    }

    /// Returns what was told.
    pub(super) fn told(&self) -> Option<f64> {
        match (self.told, self.most) {
            (Some(told), Some(most)) => Some(told.min(most)),
            (told, most) => told.or(most),
        }
    }

    /// Returns whether it was found to ask for less than it gets.
    pub(super) fn is_little(&self) -> bool {
        self.told.is_some()
    }

    /// Sets the most that is told.
    pub(super) fn set_most(&mut self, most: Option<f64>) {
        self.most = most;
    }

    /// Notes what it says that it will ask for. It counts at once, as if it asked for that much, until the next look finds
    /// that it does not.
    pub(super) fn declare(&mut self, bytes_per_s: Option<f64>) {
        self.told = bytes_per_s.or(self.told);
    }

    /// Looks again after a time, at what was served since. Whoever had nothing waiting at some time, and whose rate did
    /// not hold him, asks for little more than he got. Returns whether that is to be told.
    pub(super) fn look(&mut self, served: Served, is_waiting: bool, passed: Duration) -> bool {
        let seen = std::mem::replace(&mut self.seen, served);
        let rate = (served.cost_bytes - seen.cost_bytes) as f64 / passed.as_secs_f64();
        let always = is_waiting && served.emptied == seen.emptied;
        let held = Duration::from_nanos(served.held_ns - seen.held_ns);
        let is_more = always || held > passed / HELD;
        let asks = (!is_more).then(|| (MARGIN * rate).max(self.least));
        let same = match (self.told, asks) {
            (Some(old), Some(new)) => self.is_near(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            self.told = asks;
        }
        !same
    }

    /// Looks whether who asks for little is held already for as long as the next look would ask for. Returns whether
    /// that is to be told.
    pub(super) fn look_for_held(&mut self, served: Served) -> bool {
        let held = Duration::from_nanos(served.held_ns - self.seen.held_ns);
        self.told.is_some() && held > Self::longest_held() && self.told.take().is_some()
    }

    /// Returns how long who asks for little may be held by that before it is told.
    pub(super) const fn longest_held() -> Duration {
        Duration::from_nanos(LOOK.as_nanos() as u64 / HELD as u64)
    }

    /// Returns whether another look would find nothing new if nothing more was served.
    pub(super) fn is_settled(&self, served: Served) -> bool {
        let of = |served: Served| (served.cost_bytes, served.emptied, served.held_ns);
        of(self.seen) == of(served) && self.told.is_some_and(|told| self.is_near(told, self.least))
    }
}

#[cfg(test)]
mod tests;
