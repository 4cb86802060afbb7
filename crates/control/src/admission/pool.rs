//! What a link, or the sender of a device, can carry, and who has it.
use std::collections::VecDeque;

/// Capacity that was taken away or runs out: it is used until this time at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Outgoing {
    until_ns: u64,
    hold: u32,
    rate_bps: u64,
}

/// The capacity of a link in bits a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) capacity_bps: u64,
    /// Taken for periodic streams, small transfers and safe rates.
    pub(super) reserved_bps: u64,
    /// The rates of windows that stand.
    in_force_bps: u64,
    outgoing_bps: u64,
    /// In the order of their ends.
    outgoing: VecDeque<Outgoing>,
}

impl Pool {
    pub(super) fn new(capacity_bps: u64) -> Self {
        Self { capacity_bps, ..Self::default() }
    }

    pub(super) const fn in_force_bps(&self) -> u64 {
        self.in_force_bps
    }

    /// Returns what could be granted if nobody had anything.
    pub(super) const fn usable_bps(&self) -> u64 {
        self.capacity_bps.saturating_sub(self.reserved_bps)
    }

    /// Returns the rates of all that may send now.
    pub(super) const fn load_bps(&self) -> u64 {
        self.in_force_bps + self.outgoing_bps
    }

    /// Returns what is free now.
    pub(super) const fn free_bps(&self) -> u64 {
        self.usable_bps().saturating_sub(self.load_bps())
    }

    /// Returns until when capacity is used that was taken away or runs out.
    pub(super) fn last_hold_ns(&self) -> Option<u64> {
        self.outgoing.back().map(|part| part.until_ns)
    }

    /// Returns the first time from `now_ns` on at which `rate_bps` are free, as far as is known.
    pub(super) fn free_from_ns(&self, now_ns: u64, rate_bps: u64) -> Option<u64> {
        let last_first = self.outgoing.iter().rev().map(|part| (part.until_ns, part.rate_bps));
        free_from_ns(self.usable_bps(), self.in_force_bps, last_first, now_ns, rate_bps)
    }

    /// Changes the rate of a window.
    pub(super) fn change(&mut self, before_bps: u64, rate_bps: u64) {
        debug_assert!(self.in_force_bps >= before_bps, "given back more than was taken");
        let others_bps = self.in_force_bps.saturating_sub(before_bps);
        self.in_force_bps = others_bps.saturating_add(rate_bps);
    }

    pub(super) fn hold(&mut self, hold: u32, rate_bps: u64, until_ns: u64) {
        let part = Outgoing { until_ns, hold, rate_bps };
        self.outgoing_bps += rate_bps;
        // Most end in the order in which they begin.
        if self.outgoing.back().is_none_or(|last| *last < part) {
            self.outgoing.push_back(part);
        } else {
            let at = self.outgoing.partition_point(|other| *other < part);
            self.outgoing.insert(at, part);
        }
    }

    pub(super) fn end_hold(&mut self, hold: u32, until_ns: u64) {
        let part = if self.outgoing.front().is_some_and(|part| part.hold == hold) {
            self.outgoing.pop_front()
        } else {
            let before = |part: &Outgoing| (part.until_ns, part.hold) < (until_ns, hold);
            self.outgoing.remove(self.outgoing.partition_point(before))
        };
        debug_assert!(part.is_some_and(|part| part.hold == hold));
        self.outgoing_bps -= part.map_or(0, |part| part.rate_bps);
    }
}

/// Returns the first time from `now_ns` on at which `rate_bps` are free beside what is in force and what is
/// used until a time each (the last of them first).
pub(super) fn free_from_ns(
    usable_bps: u64,
    in_force_bps: u64,
    last_first: impl Iterator<Item = (u64, u64)>,
    now_ns: u64,
    rate_bps: u64,
) -> Option<u64> {
    let mut free_bps = usable_bps.checked_sub(in_force_bps)?.checked_sub(rate_bps)?;
    for (until_ns, held_bps) in last_first.take_while(|(until_ns, _)| *until_ns > now_ns) {
        match free_bps.checked_sub(held_bps) {
            Some(left_bps) => free_bps = left_bps,
            None => return Some(until_ns),
        }
    }
    Some(now_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_at_which_enough_is_free() {
        let mut pool = Pool::new(20);
        assert_eq!(pool.free_from_ns(5, 20), Some(5));
        pool.change(0, 5);
        pool.hold(1, 10, 100);
        pool.hold(2, 5, 50);
        assert_eq!((pool.load_bps(), pool.free_bps()), (20, 0));
        let from = |rate_bps| pool.free_from_ns(5, rate_bps);
        assert_eq!([0, 5, 6, 15, 16].map(from), [Some(5), Some(50), Some(100), Some(100), None]);
        assert_eq!(pool.free_from_ns(50, 5), Some(50), "what is over is free");
        pool.end_hold(1, 100);
        assert_eq!(pool.free_bps(), 10);
        pool.reserved_bps = 12;
        assert_eq!((pool.free_bps(), pool.free_from_ns(5, 3)), (0, Some(50)));
    }
}
