//! Periodic streams: a rate for a second, renewed for all devices of a source at once.
use super::controller::{Controller, Timer};
use super::registry::percent;
use super::{DeviceId, LinkId, Output, Refusal, SourceId, Subject};

/// How long a rate holds without renewal.
const RATE_LEASE_NS: u64 = 1_000_000_000;

impl Controller {
    pub(super) fn set_periodic(&mut self, id: DeviceId, bytes: u64, period_ns: u64) {
        let Some(device) = self.devices.get(&id) else {
            return self.refuse(Subject::Device(id), Refusal::UnknownDevice);
        };
        let bits = u128::from(bytes) * 8_000_000_000;
        let rate_bps = bits.div_ceil(u128::from(period_ns.max(1)));
        let rate_bps = u64::try_from(rate_bps).unwrap_or(u64::MAX);
        let (source, held_bps) = (device.spec.source, device.periodic_bps);
        let links = self.links_of(id);
        let room = links.iter().map(|link| {
            let link = self.link(*link);
            let most_bps = percent(link.pool.capacity_bps, self.config.periodic_percent);
            most_bps.saturating_sub(link.periodic_bps - held_bps)
        });
        let could_have_bps = room.min().unwrap_or(0).min(device.spec.rate_max_bps);
        if rate_bps > could_have_bps {
            return self.refuse(Subject::Device(id), Refusal::Rate { could_have_bps });
        }
        self.reserve_periodic(id, &links, rate_bps);
        let source_state = self.sources.entry(source).or_default();
        if rate_bps == 0 {
            source_state.periodic.remove(&id);
            return;
        }
        source_state.periodic.insert(id);
        let until_ns = self.prolong(source);
        self.outputs.push_back(Output::Rate { device: id, rate_bps, until_ns });
    }

    pub(super) fn renew(&mut self, source: SourceId) {
        let known = self.sources.get(&source);
        let devices = known.map(|source| source.periodic.clone()).unwrap_or_default();
        if devices.is_empty() {
            return;
        }
        let until_ns = self.prolong(source);
        for device in devices {
            let rate_bps = self.devices.get(&device).map_or(0, |device| device.periodic_bps);
            self.outputs.push_back(Output::Rate { device, rate_bps, until_ns });
        }
    }

    /// Gives the rates of a source back that were not renewed.
    pub(super) fn periodic_due(&mut self, source: SourceId) {
        let Some(state) = self.sources.get_mut(&source) else { return };
        state.renewal = None;
        for device in std::mem::take(&mut state.periodic) {
            let links = self.links_of(device);
            self.reserve_periodic(device, &links, 0);
        }
    }

    fn links_of(&self, id: DeviceId) -> Vec<LinkId> {
        let path = self.devices.get(&id).map(|device| device.spec.path);
        path.map_or_else(Vec::new, |path| self.config.paths[usize::from(path.0)].clone())
    }

    fn reserve_periodic(&mut self, id: DeviceId, links: &[LinkId], rate_bps: u64) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let before_bps = std::mem::replace(&mut device.periodic_bps, rate_bps);
        device.pool.reserved_bps = rate_bps;
        for link in links {
            let link = &mut self.links[usize::from(link.0)];
            link.periodic_bps = link.periodic_bps - before_bps + rate_bps;
            link.reserve();
        }
        self.stale = true;
    }

    /// Lets the rates of a source hold for a lease from now, and returns until when.
    fn prolong(&mut self, source: SourceId) -> u64 {
        let until_ns = self.now_ns.saturating_add(RATE_LEASE_NS);
        let timer = self.timers.set(until_ns, Timer::Periodic(source));
        let state = self.sources.get_mut(&source);
        if let Some(before) = state.and_then(|state| state.renewal.replace(timer)) {
            self.timers.remove(before);
        }
        until_ns
    }
}
