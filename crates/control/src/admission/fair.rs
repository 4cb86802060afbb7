//! Whether a device is within its share of a link: by a reference that shares it equally at every moment.
//!
//! In the reference everybody who has data sends at once, at rates that are in proportion to the weights
//! (generalized processor sharing, Parekh and Gallager 1993): max-min fair, what one leaves goes to the
//! others. A device is beyond its share when its data would take long there, because it asks for more than
//! the others leave, and it has far more data than they.
use super::{DeviceId, quad};

/// A device is ahead of the others when it has this many times as much data as they have in the mean: where
/// everybody wants more than there is, nobody is to blame.
const AHEAD: f64 = 4.0;

/// When the data of a device is through, in the reference: level, device and weight in one number, as levels
/// are not negative, and such numbers are in the order of their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End(u128);

impl End {
    fn new(level: f64, device: DeviceId, weight: u32) -> Self {
        let rest = (u128::from(device.0) << 32) | u128::from(weight);
        Self((u128::from(level.to_bits()) << 64) | rest)
    }

    const fn level(self) -> f64 {
        f64::from_bits((self.0 >> 64) as u64)
    }

    const fn device(self) -> DeviceId {
        DeviceId((self.0 >> 32) as u32)
    }

    const fn weight(self) -> u32 {
        self.0 as u32
    }
}

/// The reference of one link.
#[derive(Debug, Default)]
pub(super) struct Reference {
    at_ns: u64,
    /// Bits for each unit of weight that everybody who had data all the time has got.
    level: f64,
    /// Of those that have data.
    weight: u64,
    /// All data.
    bits: f64,
    /// One for each device that has data; it may have got more since.
    ends: Vec<u128>,
}

impl Reference {
    /// Lets everybody send until `now_ns`. `mark` tells up to which level a device has data.
    pub(super) fn advance(
        &mut self,
        now_ns: u64,
        capacity_bps: u64,
        mark: impl Fn(DeviceId) -> f64,
    ) {
        let mut bits = now_ns.saturating_sub(self.at_ns) as f64 * 1e-9 * capacity_bps as f64;
        self.at_ns = self.at_ns.max(now_ns);
        while let Some(end) = self.ends.first().copied().map(End) {
            let needed = (end.level() - self.level) * self.weight as f64;
            if needed > bits {
                self.level += bits / self.weight as f64;
                self.bits -= bits;
                return;
            }
            bits -= needed.max(0.0);
            self.bits -= needed.max(0.0);
            self.level = self.level.max(end.level());
            let level = mark(end.device());
            if level > end.level() {
                let End(end) = End::new(level, end.device(), end.weight());
                quad::sink(&mut self.ends, 0, end, |_, _| {});
            } else {
                quad::take(&mut self.ends, 0, |_, _| {});
                self.weight -= u64::from(end.weight());
            }
        }
    }

    /// Adds bytes of a device of some weight, after [`advance`](Self::advance): returns up to which level it
    /// has data now, at most what takes `most_ns`, and how long all of it takes if nobody comes or goes:
    /// 0 for one that is not [`AHEAD`] of the others.
    pub(super) fn add(
        &mut self,
        added: (DeviceId, u32, u64),
        mark: f64,
        capacity_bps: u64,
        most_ns: u64,
    ) -> (f64, f64) {
        let (device, weight, bytes) = added;
        let idle = mark <= self.level;
        if idle {
            self.weight += u64::from(weight);
        }
        let pace = capacity_bps.max(1) as f64 / self.weight as f64;
        let level = mark.max(self.level) + bytes as f64 * 8.0 / f64::from(weight);
        let time_ns = (level - self.level) / pace * 1e9;
        let level = level.min(self.level + pace * most_ns as f64 * 1e-9).max(mark);
        self.bits += (level - mark.max(self.level)) * f64::from(weight);
        let own = (level - self.level) * f64::from(weight);
        let others = (self.bits - own) / (self.weight - u64::from(weight)).max(1) as f64;
        let ahead = level - self.level > AHEAD * others;
        if idle {
            let End(end) = End::new(level, device, weight);
            self.ends.push(end);
            let last = self.ends.len() - 1;
            quad::rise(&mut self.ends, last, end, |_, _| {});
        }
        (level, if ahead { time_ns } else { 0.0 })
    }

    /// Forgets devices that are gone.
    pub(super) fn retain(&mut self, stays: impl Fn(DeviceId) -> bool) {
        self.ends.retain(|end| stays(End(*end).device()));
        // In order they are a heap.
        self.ends.sort_unstable();
        self.weight = self.ends.iter().map(|end| u64::from(End(*end).weight())).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const GBPS: u64 = 1_000_000_000;
    const SECOND: u64 = 1_000_000_000;
    /// Bytes that take a second at 8 Gbit/s.
    const SECOND_AT_8: u64 = 1_000_000_000;

    #[derive(Default)]
    struct Link {
        reference: Reference,
        marks: BTreeMap<u32, f64>,
    }

    impl Link {
        /// Returns how long the data of a device takes, in milliseconds.
        fn add(&mut self, now_ns: u64, device: u32, weight: u32, bytes: u64) -> u64 {
            let marks = &self.marks;
            let mark = |device: DeviceId| marks.get(&device.0).copied().unwrap_or_default();
            self.reference.advance(now_ns, 8 * GBPS, mark);
            let (before, added) = (mark(DeviceId(device)), (DeviceId(device), weight, bytes));
            let (mark, time_ns) = self.reference.add(added, before, 8 * GBPS, 1000 * SECOND);
            self.marks.insert(device, mark);
            (time_ns / 1e6).round() as u64
        }
    }

    #[test]
    fn one_alone_has_the_link_and_two_share_it_by_weight() {
        let mut link = Link::default();
        assert_eq!(link.add(0, 1, 3, SECOND_AT_8), 1000);
        assert_eq!(link.add(0, 2, 1, SECOND_AT_8 * 2), 8000);
        // Device 2 has sent a quarter of what the link carries for 1.2 s: 1.7 s are left.
        assert_eq!(link.add(1_200_000_000, 2, 1, SECOND_AT_8), 10_800);
        assert_eq!(link.add(100 * SECOND, 1, 1, SECOND_AT_8), 1000, "all is through");
    }

    #[test]
    fn where_all_have_much_nobody_is_ahead() {
        let mut link = Link::default();
        link.add(0, 1, 1, SECOND_AT_8 * 30);
        assert_eq!(link.add(0, 2, 1, SECOND_AT_8 * 30), 0);
        assert_eq!(link.add(0, 1, 1, SECOND_AT_8 * 80), 0);
        assert_eq!(link.add(0, 1, 1, SECOND_AT_8 * 30), 280_000);
    }

    #[test]
    fn what_one_leaves_goes_to_the_others() {
        let mut link = Link::default();
        link.add(0, 1, 1, SECOND_AT_8 * 10);
        link.add(0, 2, 1, SECOND_AT_8);
        // 2 s for both, of which device 1 has a second; then it has all.
        assert_eq!(link.add(2 * SECOND + SECOND, 1, 1, SECOND_AT_8), 9000);
        link.reference.retain(|device| device.0 != 1);
        assert_eq!(link.reference.weight, 0);
    }
}
