//! How much of a transfer may be on its way: as much as leaves at its rate until the first of it is acknowledged.
use crate::admission::recent::Recent;
use crate::admission::transfer::sent_bytes;

/// How long acknowledgements take: the least time from when a chunk begins to when the queue pair says that it is acknowledged.
/// When it left is not known exactly, so this is longer than the path, by the time of the shortest chunk at most. Paths change:
/// what is older than 20 s does not count.
#[derive(Debug)]
pub(super) struct AckDelay(Recent);

impl AckDelay {
    pub(super) const fn new() -> Self {
        Self(Recent::least())
    }

    /// A chunk is acknowledged, so long after it has begun.
    pub(super) fn note(&mut self, now_ns: u64, delay_ns: u64) {
        self.0.note(now_ns, delay_ns);
    }

    /// Returns it, at most `most_ns`; 0 as long as nothing is known.
    fn ns(&self, most_ns: u64) -> u64 {
        self.0.get().map_or(0, |least_ns| least_ns.min(most_ns))
    }
}

/// A chunk takes so many parts of a lease at most: a source whose window becomes faster uses that after the chunk that it has
/// begun.
const CHUNK_PARTS: u64 = 16;
/// No chunk is shorter for that.
const PART_BYTES_MIN: u64 = 4096;

/// What bounds the bytes on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    delay_ns: u64,
    lease_ns: u64,
    chunk_bytes: u64,
    round_trip_ns: u64,
}

impl Flight {
    /// Returns the bound by what is known of the path; no acknowledgement is waited for longer than a lease.
    pub(super) fn new(delay: &AckDelay, lease_ns: u64, chunk_bytes: u64) -> Self {
        Self { delay_ns: delay.ns(lease_ns), lease_ns, chunk_bytes, round_trip_ns: 0 }
    }

    /// Adds how long a message to the controller and its answer take.
    pub(super) const fn beside(self, round_trip_ns: u64) -> Self {
        Self { round_trip_ns, ..self }
    }

    /// Returns whether the controller hears in time that something will have left, and can tell another source.
    pub(super) const fn is_heard(self, now_ns: u64, leaves_ns: u64) -> bool {
        leaves_ns.saturating_sub(now_ns) >= self.round_trip_ns
    }

    /// Returns the bytes of a chunk at this rate.
    pub(super) fn part_bytes(self, rate_bps: u64) -> u64 {
        let part = sent_bytes(self.lease_ns / CHUNK_PARTS, rate_bps);
        (part / PART_BYTES_MIN * PART_BYTES_MIN).max(PART_BYTES_MIN).min(self.chunk_bytes)
    }

    /// Returns how much may be on its way when more begins: what leaves at this rate until an acknowledgement comes, and
    /// the chunk that leaves meanwhile. What is lost is acknowledged as much later, and the source waits for it. Twice as much
    /// would not, but send more into a link that has become slower: then some cuts of its capacity come too late.
    pub(super) fn bytes(self, rate_bps: u64) -> u64 {
        sent_bytes(self.delay_ns, rate_bps).saturating_add(self.chunk_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::transfer::Transfer;
    use super::*;
    use crate::admission::wire::{ControllerRecord, SourceState, Told};

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
    fn a_slow_window_has_small_chunks() {
        let flight = Flight::new(&AckDelay::new(), 200 * MS, 1 << 20);
        let bytes = [10_000_000_000, 20_000_000, 1000].map(|rate_bps| flight.part_bytes(rate_bps));
        // 12.5 ms of it, in whole pages.
        assert_eq!(bytes, [1 << 20, 28_672, 4096]);
    }

    #[test]
    fn a_path_is_filled_until_the_first_acknowledgement() {
        let mut delay = AckDelay::new();
        let bytes = |delay: &AckDelay| Flight::new(delay, 200 * MS, 1 << 20).bytes(10_000_000_000);
        assert_eq!(bytes(&delay), 1 << 20);
        delay.note(0, 20 * MS);
        assert_eq!(bytes(&delay), 25_000_000 + (1 << 20));
    }

    const BYTES: u64 = 10 << 20;

    fn granted(rate_bps: u64) -> Transfer {
        let mut transfer = Transfer::new(BYTES, 0, 1);
        let told = Told::Granted { rate_bps, from_ns: 0, until_ns: 200 * MS };
        let (device, number, revision, seen, ask) = (0, 1, 1, 1, false);
        let record =
            ControllerRecord { device, number, revision, seen, ask, told, missed_ns: None };
        transfer.obey(0, &record);
        transfer
    }

    #[test]
    fn what_has_left_needs_no_window() {
        let flight = Flight::new(&AckDelay::new(), 200 * MS, 1 << 18);
        let mut transfer = granted(1_000_000_000);
        let first = transfer.step(0, flight).unwrap();
        assert_eq!(transfer.sent(first.leaves_ns - 1), Some(first.leaves_ns - 1));
        let second = transfer.step(first.leaves_ns, flight).unwrap();
        let left = |transfer: &Transfer, now_ns: u64| {
            let state = transfer.state(now_ns);
            let SourceState::Running { left_bytes, .. } = state else { panic!("{state:?}") };
            left_bytes
        };
        let half_ns = first.leaves_ns.midpoint(second.leaves_ns);
        let half = left(&transfer, half_ns) - (BYTES - first.bytes - second.bytes);
        assert!(half.abs_diff(second.bytes / 2) <= 200, "{half} of {}", second.bytes);
        assert_eq!(left(&transfer, second.leaves_ns), BYTES - first.bytes - second.bytes);
        let takes_ns = second.leaves_ns - first.leaves_ns;
        assert_eq!(transfer.sent(second.leaves_ns + 20 * MS), Some(takes_ns + 20 * MS));
    }

    /// A thread wakes up some 50 us after the time that it asked for: chunks that began only when the line is free would leave as
    /// late, and the window not suffice.
    #[test]
    fn who_wakes_up_late_keeps_the_line_busy() {
        let flight = Flight::new(&AckDelay::new(), 200 * MS, 1 << 18);
        let mut transfer = granted(1_000_000_000);
        let first = transfer.step(0, flight).unwrap();
        let asked_ns = transfer.next_ns().unwrap();
        assert!(transfer.step(asked_ns - 1, flight).is_none(), "not sooner");
        let second = transfer.step(asked_ns + MS / 10, flight).unwrap();
        let takes_ns = first.leaves_ns;
        assert_eq!(second.leaves_ns, 2 * takes_ns, "the line was not idle");
        // It is no more ahead for that.
        assert_eq!(transfer.sent(2 * takes_ns - 1), Some(2 * takes_ns - 1));
        assert_eq!(transfer.next_ns().unwrap() - asked_ns, takes_ns);
    }

    /// A queue pair goes at the sum of its devices' rates, so a chunk of a slow window leaves sooner than its rate says.
    #[test]
    fn a_chunk_that_leaves_sooner_than_its_rate_says_does_not_shorten_the_path() {
        let flight = Flight::new(&AckDelay::new(), 200 * MS, 1 << 20);
        let mut transfer = granted(10_000_000);
        let chunk = transfer.step(0, flight).unwrap();
        assert!(chunk.leaves_ns > 5 * MS, "{} ns", chunk.leaves_ns);
        // It left at once, over a path of 20 ms there and back.
        let mut delay = AckDelay::new();
        delay.note(20 * MS, transfer.sent(20 * MS).unwrap());
        let bytes = Flight::new(&delay, 200 * MS, 1 << 20).bytes(1_000_000_000);
        assert_eq!(bytes, 2_500_000 + (1 << 20));
    }
}
