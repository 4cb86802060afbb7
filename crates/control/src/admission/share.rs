//! Whether a device or a class is within its share.
use super::controller::{Controller, Device};
use super::registry::percent;
use super::{ClassId, LinkId, TransferId};

/// Parts of a bit that are counted: a rate times nanoseconds is earned without rounding.
const SCALE: u128 = 1_000_000_000;

/// A bucket that whole transfers are charged to, or not at all. Full at first.
///
/// A pacer's bucket lets the last packet owe; this one decides an order, and must say no before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    spent: u128,
    at_ns: u64,
}

impl Share {
    /// Takes `bytes` if there are as many, earned at `rate_bps` and kept for `depth_ns`.
    pub(super) fn take(&mut self, now_ns: u64, bytes: u64, rate_bps: u64, depth_ns: u64) -> bool {
        let earned = u128::from(now_ns.saturating_sub(self.at_ns)) * u128::from(rate_bps);
        self.at_ns = self.at_ns.max(now_ns);
        self.spent = self.spent.saturating_sub(earned);
        let spent = self.spent + u128::from(bytes) * 8 * SCALE;
        let within = spent <= u128::from(rate_bps) * u128::from(depth_ns);
        if within {
            self.spent = spent;
        }
        within
    }
}

impl Controller {
    /// Adds data of a device to the references of its links; returns whether it is beyond its share.
    pub(super) fn charge_device(&mut self, id: TransferId, bytes: u64, wait_ns: u64) -> bool {
        let Some(device) = self.devices.get(&id.device) else { return false };
        let (path, weight) = (usize::from(device.spec.path.0), device.spec.weight);
        let mut beyond = false;
        for at in 0..self.config.paths[path].len() {
            let link = self.config.paths[path][at];
            let (devices, paths) = (&self.devices, &self.config.paths);
            let mark = |id| devices.get(&id).map_or(0.0, |device| device.mark(link, paths));
            let known = &mut self.links[usize::from(link.0)];
            let capacity_bps = known.pool.usable_bps();
            known.reference.advance(self.now_ns, capacity_bps, mark);
            let before = mark(id.device);
            let added = (id.device, weight, bytes);
            let most_ns = wait_ns.saturating_mul(4);
            let (mark, time_ns) = known.reference.add(added, before, capacity_bps, most_ns);
            beyond |= time_ns > wait_ns as f64;
            if let Some(device) = self.devices.get_mut(&id.device) {
                device.marks.resize(self.config.paths[path].len(), 0.0);
                device.marks[at] = mark;
            }
        }
        beyond
    }

    /// Charges the share of a class on the links of a path; returns whether it has had its share.
    pub(super) fn charge_class(
        &mut self,
        id: TransferId,
        class: ClassId,
        bytes: u64,
        depth_ns: u64,
    ) -> bool {
        let Some(device) = self.devices.get(&id.device) else { return false };
        let index = usize::from(class.0);
        let most = self.config.classes[index].share_max_percent;
        let mut beyond = false;
        for link in &self.config.paths[usize::from(device.spec.path.0)] {
            let link = &mut self.links[usize::from(link.0)];
            let class_bps = percent(link.pool.usable_bps(), most);
            let share = &mut link.shares[index];
            beyond |= most < 100 && !share.take(self.now_ns, bytes, class_bps, depth_ns);
        }
        beyond
    }
}

impl Device {
    /// Returns up to which level of the reference of a link the device has data.
    fn mark(&self, link: LinkId, paths: &[Vec<LinkId>]) -> f64 {
        let path = &paths[usize::from(self.spec.path.0)];
        let at = path.iter().position(|one| *one == link);
        at.and_then(|at| self.marks.get(at).copied()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_of_the_depth_passes_and_then_the_rate() {
        let mut share = Share::default();
        let mut take = |now_ns| share.take(now_ns, 1_000_000, 8_000_000, 20 * SECOND);
        assert_eq!((0..30).filter(|_| take(0)).count(), 20);
        assert!(!take(SECOND - 1));
        assert!(take(SECOND));
        assert!(!take(SECOND));
        assert_eq!((0..30).filter(|_| take(1000 * SECOND)).count(), 20, "no more than the depth");
    }

    #[test]
    fn what_does_not_fit_costs_nothing() {
        let mut share = Share::default();
        assert!(!share.take(0, u64::MAX, u64::MAX, 1));
        assert!(share.take(0, 1000, 8_000_000, SECOND));
        assert!(!share.take(0, 1, 0, u64::MAX));
    }
}
