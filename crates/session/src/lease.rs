//! How long a peer may be silent.
use std::time::{Duration, Instant};

/// A peer that is silent for the time of its lease is gone. Reads no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    time: Duration,
    heard: Instant,
}

impl Lease {
    /// Messages that keep a lease are sent so many times in it, unless others are.
    const RENEWALS: u32 = 3;

    /// Begins a lease of so long.
    pub const fn new(now: Instant, time: Duration) -> Self {
        Self { time, heard: now }
    }

    /// Notes that the peer was heard.
    pub const fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Sets how long it is.
    pub const fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    /// Returns how long it is.
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Returns how long to wait between two messages that keep it.
    pub fn period(&self) -> Duration {
        self.time / Self::RENEWALS
    }

    /// Returns when it ends if the peer stays silent.
    pub fn until(&self) -> Instant {
        self.heard + self.time
    }

    /// Returns how long the peer has been silent.
    pub fn silent(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_its_time_after_the_peer_was_heard() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut lease = Lease::new(start, ms(300));
        assert_eq!((lease.until(), lease.period()), (start + ms(300), ms(100)));
        lease.hear(start + ms(50));
        assert_eq!(lease.until(), start + ms(350));
        assert_eq!(lease.silent(start + ms(80)), ms(30));
        assert_eq!(lease.silent(start), Duration::ZERO);
    }
}
