//! What a link, or the sender of a device, can carry, and who has it.

/// Capacity that was taken away or runs out: it is used until this time at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outgoing {
    until_ns: u64,
    rate_bps: u64,
    hold: u64,
}

/// Capacity in bits a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) capacity_bps: u64,
    /// Taken for periodic streams, small transfers and safe rates.
    pub(super) reserved_bps: u64,
    /// The rates of windows that stand.
    in_force_bps: u64,
    outgoing: Vec<Outgoing>,
}

impl Pool {
    pub(super) const fn new(capacity_bps: u64) -> Self {
        Self { capacity_bps, reserved_bps: 0, in_force_bps: 0, outgoing: Vec::new() }
    }

    pub(super) const fn in_force_bps(&self) -> u64 {
        self.in_force_bps
    }

    /// Returns what could be granted if nobody had anything.
    pub(super) const fn usable_bps(&self) -> u64 {
        self.capacity_bps.saturating_sub(self.reserved_bps)
    }

    /// Returns the rates of all that may send now.
    pub(super) fn load_bps(&self) -> u64 {
        self.in_force_bps + self.outgoing.iter().map(|part| part.rate_bps).sum::<u64>()
    }

    /// Returns what is free now.
    pub(super) fn free_bps(&self) -> u64 {
        self.usable_bps().saturating_sub(self.load_bps())
    }

    /// Returns the first time from `now_ns` on at which `rate_bps` are free, as far as is known.
    pub(super) fn free_from_ns(&self, now_ns: u64, rate_bps: u64) -> Option<u64> {
        let usable_bps = self.usable_bps();
        let free_at = |at_ns: u64| {
            let later = self.outgoing.iter().filter(|part| part.until_ns > at_ns);
            let used_bps = self.in_force_bps + later.map(|part| part.rate_bps).sum::<u64>();
            usable_bps.checked_sub(used_bps).is_some_and(|free_bps| free_bps >= rate_bps)
        };
        if free_at(now_ns) {
            return Some(now_ns);
        }
        let ends = self.outgoing.iter().map(|part| part.until_ns);
        ends.filter(|end_ns| free_at(*end_ns)).min()
    }

    pub(super) fn take(&mut self, rate_bps: u64) {
        self.in_force_bps = self.in_force_bps.saturating_add(rate_bps);
    }

    pub(super) fn give_back(&mut self, rate_bps: u64) {
        debug_assert!(self.in_force_bps >= rate_bps, "given back more than was taken");
        self.in_force_bps = self.in_force_bps.saturating_sub(rate_bps);
    }

    pub(super) fn hold(&mut self, hold: u64, rate_bps: u64, until_ns: u64) {
        self.outgoing.push(Outgoing { until_ns, rate_bps, hold });
    }

    pub(super) fn end_hold(&mut self, hold: u64) {
        self.outgoing.retain(|part| part.hold != hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_at_which_enough_is_free() {
        let mut pool = Pool::new(20);
        assert_eq!(pool.free_from_ns(5, 20), Some(5));
        pool.take(5);
        pool.hold(1, 10, 100);
        pool.hold(2, 5, 50);
        assert_eq!((pool.load_bps(), pool.free_bps()), (20, 0));
        let from = |rate_bps| pool.free_from_ns(5, rate_bps);
        assert_eq!([0, 5, 6, 15, 16].map(from), [Some(5), Some(50), Some(100), Some(100), None]);
        pool.end_hold(1);
        assert_eq!(pool.free_bps(), 10);
        pool.reserved_bps = 12;
        assert_eq!((pool.free_bps(), pool.free_from_ns(5, 3)), (0, Some(50)));
    }
}
