//! How much of a transfer may be on its way: as much as leaves at its rate until the first of it is acknowledged.
use crate::admission::transfer::sent_bytes;

/// How long a least delay counts at least; twice that at most.
const REMEMBERED_NS: u64 = 10_000_000_000;

/// How long acknowledgements take: the least time from when a chunk has left at its rate to when the queue pair says so. Paths
/// change, so what is older than 20 s does not count.
#[derive(Debug)]
pub(super) struct AckDelay {
    least_ns: u64,
    before_ns: u64,
    until_ns: u64,
}

impl AckDelay {
    pub(super) const fn new() -> Self {
        Self { least_ns: u64::MAX, before_ns: u64::MAX, until_ns: 0 }
    }

    /// A chunk is acknowledged, so long after it should have left.
    pub(super) fn note(&mut self, now_ns: u64, delay_ns: u64) {
        if now_ns >= self.until_ns {
            (self.before_ns, self.least_ns) = (self.least_ns, delay_ns);
            self.until_ns = now_ns.saturating_add(REMEMBERED_NS);
        } else {
            self.least_ns = self.least_ns.min(delay_ns);
        }
    }

    /// Returns it, at most `most_ns`; 0 as long as nothing is known.
    const fn ns(&self, most_ns: u64) -> u64 {
        let least_ns = if self.least_ns < self.before_ns { self.least_ns } else { self.before_ns };
        match least_ns {
            u64::MAX => 0,
            _ if least_ns > most_ns => most_ns,
            _ => least_ns,
        }
    }
}

/// What bounds the bytes on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    delay_ns: u64,
    chunk_bytes: u64,
}

impl Flight {
    /// Returns the bound by what is known of the path; no acknowledgement is waited for longer than a lease.
    pub(super) const fn new(delay: &AckDelay, lease_ns: u64, chunk_bytes: u64) -> Self {
        Self { delay_ns: delay.ns(lease_ns), chunk_bytes }
    }

    pub(super) const fn chunk_bytes(self) -> u64 {
        self.chunk_bytes
    }

    /// Returns how much may be on its way when more begins: what leaves at this rate until an acknowledgement comes, and
    /// the chunk that leaves meanwhile.
    pub(super) fn bytes(self, rate_bps: u64) -> u64 {
        sent_bytes(self.delay_ns, rate_bps).saturating_add(self.chunk_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_least_delay_of_the_last_seconds_counts() {
        let mut delay = AckDelay::new();
        assert_eq!(delay.ns(200 * MS), 0, "nothing is known");
        for (at_ms, ms, least_ms) in
            [(0, 30, 30), (1, 20, 20), (2, 25, 20), (10_000, 40, 20), (20_000, 50, 40)]
        {
            delay.note(at_ms * MS, ms * MS);
            assert_eq!(delay.ns(200 * MS), least_ms * MS, "at {at_ms} ms");
        }
        assert_eq!(delay.ns(5 * MS), 5 * MS, "a lease at most");
    }

    #[test]
    fn a_path_is_filled_until_the_first_acknowledgement() {
        let mut delay = AckDelay::new();
        let bytes = |delay: &AckDelay| Flight::new(delay, 200 * MS, 1 << 20).bytes(10_000_000_000);
        assert_eq!(bytes(&delay), 1 << 20);
        delay.note(0, 20 * MS);
        assert_eq!(bytes(&delay), 25_000_000 + (1 << 20));
    }
}
