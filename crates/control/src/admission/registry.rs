//! Devices come, change and go.
use super::controller::Controller;
use super::device::Device;
use super::pool::Pool;
use super::{DeviceId, DeviceSpec, Refusal, SourceId, Subject};
use std::collections::VecDeque;

impl Controller {
    pub(super) fn register(&mut self, id: DeviceId, spec: DeviceSpec) {
        if let Err(reason) = self.check(id, &spec) {
            return self.refuse(Subject::Device(id), reason);
        }
        let before = self.devices.get(&id).map(|device| device.spec.clone());
        if let Some(before) = before {
            self.count_device(&before, false);
        }
        self.count_device(&spec, true);
        self.sources.entry(spec.source).or_default().devices.insert(id);
        if let Some(device) = self.devices.get_mut(&id) {
            device.pool.capacity_bps = spec.rate_max_bps;
            device.spec = spec;
        } else {
            let device = Device {
                pool: Pool::new(spec.rate_max_bps),
                spec,
                marks: Vec::new(),
                queue: VecDeque::new(),
                head: None,
                transfers: 0,
                periodic_bps: 0,
            };
            self.devices.insert(id, device);
        }
        self.stale |= self.devices.get(&id).is_some_and(|device| device.transfers > 0);
    }

    fn check(&self, id: DeviceId, spec: &DeviceSpec) -> Result<(), Refusal> {
        let Some(path) = self.config.paths.get(usize::from(spec.path.0)) else {
            return Err(Refusal::UnknownPath);
        };
        if usize::from(spec.class.0) >= self.config.classes.len() {
            return Err(Refusal::UnknownClass);
        }
        if spec.rate_max_bps == 0 || spec.weight == 0 {
            return Err(Refusal::NoRate);
        }
        let before = self.devices.get(&id);
        let most = self.config.devices_max;
        let full = self.devices.len() >= most as usize || id.0 >= most;
        match before.map(|device| &device.spec) {
            None if full => return Err(Refusal::TooManyDevices),
            Some(before) if before.source != spec.source => return Err(Refusal::ForeignDevice),
            Some(before) if before.path != spec.path && before_is_used(self.devices.get(&id)) => {
                return Err(Refusal::Busy);
            }
            None | Some(_) => {}
        }
        let small_bps = before.map_or(0, |device| device.spec.small_bps);
        for link in path {
            let link = self.link(*link);
            let most_bps = percent(link.pool.capacity_bps, self.config.small_percent);
            let others_bps = link.small_bps.saturating_sub(small_bps);
            if spec.small_bps > 0 && others_bps.saturating_add(spec.small_bps) > most_bps {
                return Err(Refusal::SmallFull);
            }
        }
        Ok(())
    }

    /// Counts the bucket of a device on its links, or no longer.
    fn count_device(&mut self, spec: &DeviceSpec, in_addition: bool) {
        for link in &self.config.paths[usize::from(spec.path.0)] {
            let link = &mut self.links[usize::from(link.0)];
            if in_addition {
                link.small_bps += spec.small_bps;
            } else {
                link.small_bps -= spec.small_bps;
            }
            link.reserve();
        }
    }

    pub(super) fn leave(&mut self, source: SourceId) {
        let devices = self.sources.get(&source).map(|source| source.devices.clone());
        for id in devices.unwrap_or_default() {
            self.set_periodic(id, 0, 1);
            while let Some(transfer) = self.transfers.any_of(id) {
                self.end(transfer, 0);
            }
            if let Some(device) = self.devices.remove(&id) {
                self.count_device(&device.spec, false);
            }
        }
        self.sources.remove(&source);
        let devices = &self.devices;
        for link in &mut self.links {
            link.reference.retain(|device| devices.get(&device).is_some());
        }
        self.stale = true;
    }
}

fn before_is_used(device: Option<&Device>) -> bool {
    device.is_some_and(|device| device.transfers > 0 || device.periodic_bps > 0)
}

/// Returns this many percent of a rate.
pub(super) fn percent(rate_bps: u64, percent: u8) -> u64 {
    let part = u128::from(rate_bps) * u128::from(percent) / 100;
    u64::try_from(part).unwrap_or(u64::MAX)
}
