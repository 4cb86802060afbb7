//! Charges the shares of devices and classes.
use super::controller::Controller;
use super::device::Device;
use super::registry::percent;
use super::{ClassId, LinkId, TransferId};

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
