//! What everybody who wants something of a link all the time is granted, for each unit of weight.
//!
//! Virtual time of start-time fair queueing (Goyal, Vin and Cheng 1996).

/// The level of a link.
#[derive(Debug, Default)]
pub(super) struct Level {
    at_ns: u64,
    /// Bits for each unit of weight.
    bits: f64,
    /// Of the devices that want something.
    weight: u64,
    /// The highest mark of a device.
    most: f64,
}

impl Level {
    /// Returns where it is by now. It stands still while nobody wants anything.
    fn bits_at(&self, now_ns: u64, capacity_bps: u64) -> f64 {
        if self.weight == 0 {
            return self.bits;
        }
        let bits = now_ns.saturating_sub(self.at_ns) as f64 * 1e-9 * capacity_bps as f64;
        self.bits + bits / self.weight as f64
    }

    pub(super) fn advance(&mut self, now_ns: u64, capacity_bps: u64) {
        self.bits = self.bits_at(now_ns, capacity_bps);
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// Counts a device that begins to want something, or no longer does. When nobody does, all have what they wanted
    /// and nobody is ahead.
    pub(super) fn count(&mut self, weight: u32, wants: bool) {
        let weight = u64::from(weight);
        self.weight = if wants { self.weight + weight } else { self.weight.saturating_sub(weight) };
        if self.weight == 0 {
            self.bits = self.bits.max(self.most);
        }
    }

    /// Returns the mark of a device that had a mark `before` and is granted this many bits for each unit of its weight,
    /// after [`advance`](Self::advance).
    pub(super) fn raise(&mut self, before: f64, bits: f64) -> f64 {
        let mark = before.max(self.bits) + bits;
        self.most = self.most.max(mark);
        mark
    }

    /// Returns how far a mark is above the level.
    pub(super) fn below(&self, mark: f64, now_ns: u64, capacity_bps: u64) -> f64 {
        (mark - self.bits_at(now_ns, capacity_bps)).max(0.0)
    }
}
