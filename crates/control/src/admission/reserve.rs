//! Periodic streams: a rate for a second, renewed for all devices of a source at once.
use super::controller::{Controller, Timer};
use super::registry::percent;
use super::{DeviceId, NONE, Output, Refusal, SourceId, Subject};

/// How long a rate holds without renewal.
const RATE_LEASE_NS: u64 = 1_000_000_000;

impl Controller {
    pub(super) fn set_periodic(&mut self, id: DeviceId, bytes: u64, period_ns: u64) {
        let Some(device) = self.devices.get(id) else {
            return self.refuse(Subject::Device(id), Refusal::UnknownDevice);
        };
        let bits = u128::from(bytes) * 8_000_000_000;
        let rate_bps = bits.div_ceil(u128::from(period_ns.max(1)));
        let rate_bps = u64::try_from(rate_bps).unwrap_or(u64::MAX);
        let (source, held_bps) = (self.devices.source(id), device.periodic_bps);
        let room = self.paths[usize::from(device.path.0)].links.iter().map(|link| {
            let link = &self.links[*link];
            let most_bps = percent(link.pool.capacity_bps, self.config.periodic_percent);
            most_bps.saturating_sub(link.periodic_bps - held_bps)
        });
        let could_have_bps = room.min().unwrap_or(0).min(device.rate_max_bps);
        if rate_bps > could_have_bps {
            return self.refuse(Subject::Device(id), Refusal::Rate { could_have_bps });
        }
        self.reserve_periodic(id, rate_bps);
        if let Some(known) = self.sources.get_mut(&source) {
            self.devices.place_periodic(id, &mut known.first);
        }
        if rate_bps > 0 {
            let until_ns = self.prolong(source);
            self.outputs.push_back(Output::Rate { device: id, rate_bps, until_ns });
        }
    }

    pub(super) fn renew(&mut self, source: SourceId) {
        let Some(first) = self.sources.get(&source).map(|source| source.first) else { return };
        if first == NONE || self.devices.known(DeviceId(first)).periodic_bps == 0 {
            return;
        }
        let until_ns = self.prolong(source);
        for device in self.devices.ring(first) {
            let rate_bps = self.devices.known(device).periodic_bps;
            if rate_bps == 0 {
                break;
            }
            self.outputs.push_back(Output::Rate { device, rate_bps, until_ns });
        }
    }

    /// Gives the rates of a source back that were not renewed.
    pub(super) fn periodic_due(&mut self, source: SourceId) {
        let Some(state) = self.sources.get_mut(&source) else { return };
        state.renewal = None;
        let mut first = state.first;
        while first != NONE && self.devices.known(DeviceId(first)).periodic_bps > 0 {
            self.reserve_periodic(DeviceId(first), 0);
            self.devices.place_periodic(DeviceId(first), &mut first);
        }
        if let Some(state) = self.sources.get_mut(&source) {
            state.first = first;
        }
    }

    pub(super) fn reserve_periodic(&mut self, id: DeviceId, rate_bps: u64) {
        let device = self.devices.known_mut(id);
        let before_bps = std::mem::replace(&mut device.periodic_bps, rate_bps);
        let path = &self.paths[usize::from(device.path.0)];
        for link in &path.links {
            let link = &mut self.links[*link];
            link.periodic_bps = link.periodic_bps - before_bps + rate_bps;
            link.reserve();
        }
        if before_bps != rate_bps {
            self.note_stale(path.part);
        }
    }

    /// Lets the rates of a source hold for a lease from now, and returns until when.
    fn prolong(&mut self, source: SourceId) -> u64 {
        let until_ns = self.now_ns.saturating_add(RATE_LEASE_NS);
        let Some(state) = self.sources.get_mut(&source) else { return until_ns };
        match state.renewal {
            Some(timer) => self.timers.reset(timer, until_ns),
            None => {
                state.renewal = Some(self.timers.set(until_ns, Timer::Periodic(source)));
            }
        }
        until_ns
    }
}
