//! JUSTITIA (Zhang, Tan, Stephens and Chowdhury, "Justitia: Software Multi-Tenancy in Hardware Kernel-Bypass
//! Networks", NSDI 2022), to compare with. No I/O and no clock.
//!
//! Written from the paper's abstract and what its authors published beside it (the monitor and the pacer of their
//! driver: facts, not code), not checked line by line against its text. Of its three parts *messages are split* into chunks (by the [scheduler](crate::scheduler)),
//! and *the sender paces* with tokens those who move much, while those who send little and wait for it go
//! without; how many bytes a second the tokens are worth (its SafeUtil) is decided by *monitoring latency*: a
//! reference flow of tiny requests to the receiver, of whose latency the 99th percentile has a target. Where it is missed
//! the cap is halved, but not below the part that those who move much have of all; where it is met the cap grows by a
//! constant; without anybody to protect it is the line rate. Left out: split queue pairs (chunks go over the
//! connection's own), and updates by receivers with several senders.
use std::time::Duration;

/// Probes of which the 99th percentile is taken.
const WINDOW: usize = 1000;
/// By how much the cap grows with each probe that finds the target met, in bytes a second.
const STEP: f64 = 1e6;
/// Bytes of a request, on average, from which an application is one that moves much. This limit, the next one and
/// `WINDOW` are choices of ours.
const LONG_BYTES: u64 = 4096;
/// Requests at once from which it is one too, however short they are.
const MANY: u64 = 16;

/// Who an application is, by what it did since it was last looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It did nothing yet.
    #[default]
    Idle,
    /// It waits for short requests: it is protected, and takes no tokens.
    Small,
    /// It moves much, in long requests or in many at once.
    Big,
}

impl Kind {
    /// Returns the kind of who made so many requests of so many bytes together, and has so many under way; the old
    /// one, where it made none.
    pub(crate) fn of(self, requests: u64, bytes: u64, under_way: u64) -> Self {
        if under_way >= MANY {
            Self::Big
        } else if requests == 0 {
            self
        } else if bytes >= requests * LONG_BYTES {
            Self::Big
        } else {
            Self::Small
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pacing {
    line: f64,
    target: Duration,
    cap: f64,
    /// Whether each of the last probes missed the target.
    late: Vec<bool>,
    next: usize,
    late_count: usize,
    /// Applications that move much, and that are protected.
    big: usize,
    small: usize,
}

impl Pacing {
    /// For a line of so many bytes a second.
    pub(crate) fn new(line_bytes_per_s: f64, target: Duration) -> Self {
        Self {
            line: line_bytes_per_s,
            target,
            cap: line_bytes_per_s,
            late: Vec::with_capacity(WINDOW),
            next: 0,
            late_count: 0,
            big: 0,
            small: 0,
        }
    }

    /// Takes note of how many applications move much, and how many are protected.
    pub(crate) fn count(&mut self, big: usize, small: usize) {
        (self.big, self.small) = (big, small);
        if big == 0 || small == 0 {
            self.cap = self.line;
        }
    }

    /// Takes the latency of a probe.
    pub(crate) fn probed(&mut self, latency: Duration) {
        let late = latency > self.target;
        if self.late.len() < WINDOW {
            self.late.push(late);
        } else {
            let old = std::mem::replace(&mut self.late[self.next], late);
            self.late_count -= usize::from(old);
            self.next = (self.next + 1) % WINDOW;
        }
        self.late_count += usize::from(late);
        if self.big == 0 || self.small == 0 {
            return;
        }
        if self.late_count * 100 > self.late.len() {
            // Those who are protected count as one, as they take next to nothing.
            let floor = self.line * self.big as f64 / (self.big as f64 + 1.0);
            self.cap = (self.cap / 2.0).max(floor);
        } else {
            self.cap = (self.cap + STEP).min(self.line);
        }
    }

    /// Returns the bytes a second of the tokens of all applications that move much.
    pub(crate) fn cap(&self) -> f64 {
        self.cap
    }

    /// Returns whether there is somebody to protect, and somebody to protect him from.
    pub(crate) fn is_needed(&self) -> bool {
        self.big > 0 && self.small > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 1e9;
    const TARGET: Duration = Duration::from_micros(10);

    fn probes(pacing: &mut Pacing, count: usize, micros: u64) {
        (0..count).for_each(|_| pacing.probed(Duration::from_micros(micros)));
    }

    #[test]
    fn who_moves_much_is_told_from_who_waits() {
        assert_eq!(Kind::Idle.of(100, 6400, 1), Kind::Small);
        assert_eq!(Kind::Idle.of(10, 10 << 20, 1), Kind::Big);
        assert_eq!(Kind::Small.of(1000, 64_000, 64), Kind::Big, "short ones, many at once");
        assert_eq!(Kind::Small.of(0, 0, 0), Kind::Small, "nothing new is known");
    }

    #[test]
    fn the_cap_falls_while_the_tail_misses_its_target_and_comes_back() {
        let mut pacing = Pacing::new(LINE, TARGET);
        pacing.count(1, 3);
        probes(&mut pacing, 990, 5);
        assert!((pacing.cap() - LINE).abs() < 1.0);
        probes(&mut pacing, 10, 50);
        assert!((pacing.cap() - LINE).abs() < 1.0, "one in a hundred may be late");
        probes(&mut pacing, 1, 50);
        assert!((pacing.cap() - LINE / 2.0).abs() < 1.0, "not below what one of two has");
        probes(&mut pacing, 1000, 5);
        let back = pacing.cap() - LINE / 2.0;
        assert!(back > 0.0 && back < LINE / 2.0, "it grows by a step each: {back}");
        probes(&mut pacing, 1000, 5);
        assert!((pacing.cap() - LINE).abs() < 1.0);
    }

    #[test]
    fn without_anybody_to_protect_tokens_are_worth_the_line() {
        let mut pacing = Pacing::new(LINE, TARGET);
        pacing.count(4, 0);
        probes(&mut pacing, 100, 50);
        assert!((pacing.cap() - LINE).abs() < 1.0);
        pacing.count(4, 1);
        probes(&mut pacing, 1, 50);
        assert!((pacing.cap() - LINE * 0.8).abs() < 1.0);
        pacing.count(4, 0);
        assert!((pacing.cap() - LINE).abs() < 1.0);
        assert!(!pacing.is_needed());
    }
}
