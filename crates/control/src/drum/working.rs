//! What a host can send, as it turns out: less than was stated where rates were not kept.
//!
//! Whoever moves the requests of a host counts the time in which somebody could have been served more and was not, what was
//! served in it, and what rates gave meanwhile that nobody will be served any more. Where nearly all of a time was of that kind, and a
//! hundredth was lost, the next time is looked at, too: what was served in the better one of both, times 0.98, is the
//! *working* capacity. It climbs again while nothing of that kind happens.
use crate::capacity::{CLIMB_NS, climbed, lowered, part};

/// From one judgement to the next.
const SPAN_NS: u64 = CLIMB_NS;
/// A time much longer than that says nothing: nobody counted.
const LONGEST_SPANS: u64 = 3;
/// Of a time, in percent: with a smaller part of it behind, more could have been sent in the rest.
const BEHIND_PERCENT: u64 = 90;
/// Of what rates gave, in percent: less may be lost by anything.
const LOST_PERCENT: u64 = 1;
/// A step upwards is no more than such a part of what works, even if a hundred times as much was stated.
const CLIMB_PARTS: u64 = 100;
/// It falls to no less than such a part of what worked: from almost nothing it would not come back for minutes.
const FALL_PARTS: u64 = 16;

/// What was counted since the host began; no count ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Time in which somebody could have been served more all the time and was not, in nanoseconds.
    pub ns: u64,
    /// What was served in that time, to all, in bytes.
    pub served_bytes: u64,
    /// What rates gave in that time to those, and they will not be served any more, in bytes.
    pub lost_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Climbs.
    Watching,
    /// Rates were not kept in the last span, in which so many bytes a second were served: how many in this one?
    Measuring { bytes_per_s: u64 },
    /// What is counted was sent at the rates before.
    Settling,
}

/// The capacity of a host's sending that works; see the module.
#[derive(Clone, Debug)]
pub struct Working {
    stated: u64,
    bytes_per_s: u64,
    phase: Phase,
    since_ns: u64,
    since: Behind,
}

impl Behind {
    fn since(self, before: Self) -> Self {
        Self {
            ns: self.ns.saturating_sub(before.ns),
            served_bytes: self.served_bytes.saturating_sub(before.served_bytes),
            lost_bytes: self.lost_bytes.saturating_sub(before.lost_bytes),
        }
    }

    /// Returns whether rates were not kept in a time of so many nanoseconds.
    fn is_short(self, span_ns: u64) -> bool {
        let given = self.served_bytes.saturating_add(self.lost_bytes);
        self.ns >= part(span_ns, BEHIND_PERCENT, 100)
            && self.lost_bytes > 0
            && self.lost_bytes >= part(given, LOST_PERCENT, 100)
    }

    fn bytes_per_s(self) -> u64 {
        part(self.served_bytes, 1_000_000_000, self.ns)
    }
}

impl Working {
    /// Begins with what is stated, in bytes a second.
    #[must_use]
    pub const fn new(stated_bytes_per_s: u64, now_ns: u64) -> Self {
        Self {
            stated: stated_bytes_per_s,
            bytes_per_s: stated_bytes_per_s,
            phase: Phase::Watching,
            since_ns: now_ns,
            since: Behind { ns: 0, served_bytes: 0, lost_bytes: 0 },
        }
    }

    /// Returns what is stated, in bytes a second.
    #[must_use]
    pub const fn stated_bytes_per_s(&self) -> u64 {
        self.stated
    }

    /// Returns what works of it, in bytes a second: never more.
    #[must_use]
    pub const fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// Takes what was counted until now; returns whether another capacity works from now on. To be called every few
    /// milliseconds while something is sent.
    pub fn look(&mut self, now_ns: u64, behind: Behind) -> bool {
        let span_ns = now_ns.saturating_sub(self.since_ns);
        if span_ns < SPAN_NS {
            return false;
        }
        let counted = behind.since(self.since);
        (self.since_ns, self.since) = (now_ns, behind);
        let is_short = span_ns <= LONGEST_SPANS * SPAN_NS && counted.is_short(span_ns);
        let before = self.bytes_per_s;
        self.phase = match self.phase {
            Phase::Settling => Phase::Watching,
            Phase::Watching if is_short => Phase::Measuring { bytes_per_s: counted.bytes_per_s() },
            Phase::Measuring { bytes_per_s } if is_short => {
                // What kept it from more in one of them may have passed.
                let served = bytes_per_s.max(counted.bytes_per_s());
                self.bytes_per_s = lowered(served, (before / FALL_PARTS).max(1), before);
                Phase::Settling
            }
            Phase::Watching | Phase::Measuring { .. } => {
                self.climb(span_ns / SPAN_NS);
                Phase::Watching
            }
        };
        self.bytes_per_s != before
    }

    /// Works so many steps higher.
    fn climb(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.bytes_per_s == self.stated {
                return;
            }
            let most = self.bytes_per_s.saturating_add((self.bytes_per_s / CLIMB_PARTS).max(1));
            self.bytes_per_s = climbed(self.bytes_per_s, self.stated).min(most);
        }
    }
}
