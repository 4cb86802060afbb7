//! Devices come, change and go.
use super::controller::Controller;
use super::{ClassId, DeviceId, DeviceSpec, LinkId, NONE, PathId, Refusal, SourceId, Subject};

impl Controller {
    pub(super) fn register(&mut self, id: DeviceId, spec: &DeviceSpec) {
        if let Err(reason) = self.check(id, spec) {
            return self.refuse(Subject::Device(id), reason);
        }
        if let Some(before) = self.devices.get(id) {
            let path = before.path;
            self.count_small(path, self.devices.small_bps(id), 0);
        }
        self.count_small(spec.path, 0, spec.small_bps);
        let path = &self.paths[usize::from(spec.path.0)];
        let (links, part) = (path.links.len(), path.part);
        let wants = self.devices.get(id).is_some_and(|before| before.head != NONE);
        if wants {
            self.count_wanting(id, false);
        }
        let source = self.sources.entry(spec.source).or_default();
        self.devices.set(id, spec, links, &mut source.first);
        if wants {
            self.count_wanting(id, true);
        }
        if self.devices.known(id).transfers > 0 {
            self.note_stale(part);
        }
    }

    pub(super) fn set_delay(&mut self, source: SourceId, delay_ns: u64) {
        let first = self.sources.get(&source).map_or(NONE, |known| known.first);
        let mut next = self.devices.ring(first).next();
        while let Some(id) = next {
            self.devices.known_mut(id).delay_ns = delay_ns;
            if self.devices.known(id).transfers > 0 {
                self.note_stale(self.paths[usize::from(self.path_of(id).0)].part);
            }
            next = self.devices.after(id).filter(|next| next.0 != first);
        }
    }

    /// Returns the path and the class of a device that is there.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> Option<(PathId, ClassId)> {
        self.devices.get(id).map(|device| (device.path, device.class))
    }

    /// Returns what small transfers have of a link without asking: bits a second.
    pub(super) fn small_bps(&self, link: LinkId) -> u64 {
        self.links.get(usize::from(link.0)).map_or(0, |link| link.small_bps)
    }

    /// Returns what those of a device have of it.
    pub(super) fn small_of(&self, id: DeviceId, link: LinkId) -> u64 {
        let path = self.devices.get(id).map(|device| &self.paths[usize::from(device.path.0)]);
        let is_on = path.is_some_and(|path| path.links.contains(&usize::from(link.0)));
        if is_on { self.devices.small_bps(id) } else { 0 }
    }

    /// Returns how many devices are there.
    #[must_use]
    pub const fn devices(&self) -> usize {
        self.devices.len()
    }

    fn check(&self, id: DeviceId, spec: &DeviceSpec) -> Result<(), Refusal> {
        let Some(path) = self.paths.get(usize::from(spec.path.0)) else {
            return Err(Refusal::UnknownPath);
        };
        if usize::from(spec.class.0) >= self.config.classes.len() {
            return Err(Refusal::UnknownClass);
        }
        if spec.rate_max_bps == 0 || spec.weight == 0 {
            return Err(Refusal::NoRate);
        }
        let most = self.config.devices_max;
        let full = self.devices.len() >= most as usize || id.0 >= most;
        let mut small_bps = 0;
        match self.devices.get(id) {
            None if full => return Err(Refusal::TooManyDevices),
            None => {}
            Some(_) if self.devices.source(id) != spec.source => {
                return Err(Refusal::ForeignDevice);
            }
            Some(before) if before.path != spec.path && before.is_used() => {
                return Err(Refusal::Busy);
            }
            Some(_) => small_bps = self.devices.small_bps(id),
        }
        for link in &path.links {
            let link = &self.links[*link];
            let most_bps = percent(link.pool.capacity_bps, self.config.small_percent);
            let others_bps = link.small_bps.saturating_sub(small_bps);
            if spec.small_bps > 0 && others_bps.saturating_add(spec.small_bps) > most_bps {
                return Err(Refusal::SmallFull);
            }
        }
        Ok(())
    }

    /// Counts the bucket of a device on its links.
    fn count_small(&mut self, path: PathId, before_bps: u64, small_bps: u64) {
        for link in &self.paths[usize::from(path.0)].links {
            let link = &mut self.links[*link];
            link.small_bps = link.small_bps - before_bps + small_bps;
            link.reserve();
        }
    }

    pub(super) fn leave(&mut self, source: SourceId) {
        let Some(mut known) = self.sources.remove(&source) else { return };
        if let Some(timer) = known.renewal {
            self.timers.remove(timer);
        }
        let mut devices: Vec<DeviceId> = self.devices.ring(known.first).collect();
        devices.sort_unstable();
        self.starting.retain(|(id, _)| self.devices.source(*id) != source);
        for id in devices {
            self.reserve_periodic(id, 0);
            while self.devices.known(id).first != NONE {
                self.end(self.devices.known(id).first, 0);
            }
            while self.devices.known(id).holds != NONE {
                self.end_hold(self.devices.known(id).holds);
            }
            let path = self.path_of(id);
            self.count_small(path, self.devices.small_bps(id), 0);
            self.devices.remove(id, &mut known.first);
            self.note_stale(self.paths[usize::from(path.0)].part);
        }
        let devices = &self.devices;
        for link in &mut self.links {
            link.reference.retain(|device| devices.get(device).is_some());
        }
    }
}

/// Returns this many percent of a rate.
pub(super) fn percent(rate_bps: u64, percent: u8) -> u64 {
    let part = u128::from(rate_bps) * u128::from(percent) / 100;
    u64::try_from(part).unwrap_or(u64::MAX)
}
