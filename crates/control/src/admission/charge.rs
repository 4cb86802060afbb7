//! Charges the shares of devices and classes.
use super::controller::Controller;
use super::registry::percent;
use super::transfer::sent_bytes as bytes_in;
use super::{ClassId, DeviceId, Pausing};

impl Controller {
    /// Adds data of a device to the references of its links; returns whether it is beyond its share.
    pub(super) fn charge_device(&mut self, id: DeviceId, bytes: u64, wait_ns: u64) -> bool {
        let device = self.devices.known(id);
        let (path, weight) = (usize::from(device.path.0), device.weight);
        let mut beyond = false;
        for at in 0..self.paths[path].links.len() {
            let link = self.paths[path].links[at];
            let (devices, paths) = (&self.devices, &self.paths);
            let mark = |id| {
                let links = &paths[usize::from(devices.get(id)?.path.0)].links;
                let place = links.iter().position(|one| *one == link)?;
                Some(devices.mark(id, place))
            };
            let known = &mut self.links[link];
            let capacity_bps = known.pool.usable_bps();
            known.reference.advance(self.now_ns, capacity_bps, |id| mark(id).unwrap_or_default());
            let before = devices.mark(id, at);
            let added = (id, weight, bytes);
            let most_ns = wait_ns.saturating_mul(4);
            let (mark, time_ns) = known.reference.add(added, before, capacity_bps, most_ns);
            beyond |= time_ns > wait_ns as f64;
            self.devices.set_mark(id, at, mark);
        }
        beyond
    }

    /// Charges the share of a class on the links of a path, with what stays idle until a newcomer of it may
    /// begin; returns whether it has had its share.
    pub(super) fn charge_class(
        &mut self,
        id: DeviceId,
        class: ClassId,
        bytes: u64,
        depth_ns: u64,
    ) -> bool {
        let index = usize::from(class.0);
        let most = self.config.classes[index].share_max_percent;
        let mut beyond = false;
        if most < 100 {
            // It begins when the other has confirmed that it stopped, and the next after it a guard later.
            let idle_ns = match self.config.rules.pausing {
                Pausing::Confirmed => 2 * self.devices.known(id).delay_ns + 2 * self.guard_ns(id),
                Pausing::Predicted | Pausing::Never => 0,
            };
            for link in &self.paths[usize::from(self.path_of(id).0)].links {
                let link = &mut self.links[*link];
                let usable_bps = link.pool.usable_bps();
                let bytes = bytes.saturating_add(bytes_in(idle_ns, usable_bps));
                let class_bps = percent(usable_bps, most);
                beyond |= !link.shares[index].take(self.now_ns, bytes, class_bps, depth_ns);
            }
        }
        beyond
    }
}
