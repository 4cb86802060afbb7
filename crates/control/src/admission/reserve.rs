//! Periodic streams: a rate for a second, renewed for all devices of a source at once.
//!
//! A rate is taken from its links at once, so that nothing more of it is granted, and told when windows do not use
//! it any more.
use super::controller::{Controller, Timer};
use super::registry::percent;
use super::{DeviceId, NONE, Output, Refusal, SourceId, Subject};

/// How long a rate holds without renewal.
pub(super) const RATE_LEASE_NS: u64 = 1_000_000_000;

/// Returns the rate of a device that sends so much each period: bits a second, rounded up.
pub(super) fn rate_of(bytes: u64, period_ns: u64) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    u64::try_from(bits.div_ceil(u128::from(period_ns.max(1)))).unwrap_or(u64::MAX)
}

impl Controller {
    pub(super) fn set_periodic(&mut self, id: DeviceId, bytes: u64, period_ns: u64, held: bool) {
        if self.devices.get(id).is_none() {
            return self.refuse(Subject::Device(id), Refusal::UnknownDevice);
        }
        let (rate_bps, source) = (rate_of(bytes, period_ns), self.devices.source(id));
        let could_have_bps = self.could_have_bps(id);
        if rate_bps > could_have_bps {
            self.withdraw_rate(id);
            return self.refuse(Subject::Device(id), Refusal::Rate { could_have_bps });
        }
        let device = self.devices.known(id);
        let is_same = device.has_rate && device.periodic_bps == rate_bps;
        if is_same && rate_bps > 0 {
            let until_ns = self.prolong(source);
            return self.outputs.push_back(Output::Rate { device: id, rate_bps, until_ns });
        }
        if !self.is_starting(id) || device.periodic_bps != rate_bps {
            self.withdraw_rate(id);
            self.reserve_periodic(id, rate_bps);
            self.place_periodic(id);
        }
        if rate_bps > 0 {
            self.prolong(source);
            if held {
                self.starting.retain(|(other, _)| *other != id);
                self.start_rate(id);
            } else if !self.is_starting(id) {
                self.starting.push((id, None));
            }
        }
    }

    fn is_starting(&self, id: DeviceId) -> bool {
        self.starting.iter().any(|(other, _)| *other == id)
    }

    /// Returns the rate that a device has, and the greatest that it could have: bits a second.
    #[must_use]
    pub fn rate_of(&self, id: DeviceId) -> Option<(u64, u64)> {
        let device = self.devices.get(id)?;
        let rate_bps = if device.has_rate { device.periodic_bps } else { 0 };
        Some((rate_bps, self.could_have_bps(id)))
    }

    /// Returns the greatest rate that a device could have.
    fn could_have_bps(&self, id: DeviceId) -> u64 {
        let device = self.devices.known(id);
        let room = self.paths[usize::from(device.path.0)].links.iter().map(|link| {
            let link = &self.links[*link];
            let most_bps = percent(link.pool.capacity_bps, self.config.periodic_percent);
            most_bps.saturating_sub(link.periodic_bps - device.periodic_bps)
        });
        room.min().unwrap_or(0).min(device.rate_max_bps)
    }

    /// Tells rates that are free, a guard after windows have left them: what these sent may be held up.
    pub(super) fn start_rates(&mut self) {
        let mut at = 0;
        while let Some((id, free_from_ns)) = self.starting.get(at).copied() {
            let path = &self.paths[usize::from(self.path_of(id).0)];
            let is_free = path.links.iter().all(|link| {
                let pool = &self.links[*link].pool;
                pool.load_bps() <= pool.usable_bps()
            });
            let begins_ns = free_from_ns.filter(|_| is_free);
            if is_free && begins_ns.is_none() {
                let begins_ns = self.now_ns.saturating_add(path.guard_ns);
                self.starting[at].1 = Some(begins_ns);
                self.timers.set(begins_ns, Timer::Start);
                continue;
            }
            if begins_ns.is_some_and(|begins_ns| begins_ns <= self.now_ns) {
                self.starting.swap_remove(at);
                self.start_rate(id);
                continue;
            }
            self.starting[at].1 = begins_ns;
            at += 1;
        }
    }

    fn start_rate(&mut self, id: DeviceId) {
        let source = self.devices.source(id);
        let until_ns = self.prolong(source);
        let device = self.devices.known_mut(id);
        let rate_bps = device.periodic_bps;
        device.has_rate = true;
        if let Some(known) = self.sources.get_mut(&source) {
            known.rates.0 += 1;
            known.rates.1 += rate_bps;
        }
        self.outputs.push_back(Output::Rate { device: id, rate_bps, until_ns });
    }

    pub(super) fn renew(&mut self, source: SourceId) {
        if self.is_over {
            self.take_back_over(source);
            self.is_over = self.are_rates_over();
        }
        let (devices, rate_bps) = self.sources.get(&source).map_or((0, 0), |known| known.rates);
        let until_ns = if devices > 0 { self.prolong(source) } else { self.now_ns };
        self.outputs.push_back(Output::Renewed { source, devices, rate_bps, until_ns });
    }

    /// Returns whether more is taken for rates of some link than they may have, as it carries less than before.
    pub(super) fn are_rates_over(&self) -> bool {
        let most = self.config.periodic_percent;
        self.links.iter().any(|link| link.periodic_bps > percent(link.pool.capacity_bps, most))
    }

    /// Takes rates of a source back until they fit their links again, and says so.
    fn take_back_over(&mut self, source: SourceId) {
        let Some(first) = self.sources.get(&source).map(|known| known.first) else { return };
        let has = |id: &DeviceId| self.devices.known(*id).periodic_bps > 0;
        let devices: Vec<DeviceId> = self.devices.ring(first).take_while(has).collect();
        for id in devices {
            let could_have_bps = self.could_have_bps(id);
            if self.devices.known(id).periodic_bps > could_have_bps {
                self.withdraw_rate(id);
                self.refuse(Subject::Device(id), Refusal::Rate { could_have_bps });
            }
        }
    }

    /// Takes the rate of a device back, if it has one.
    fn withdraw_rate(&mut self, id: DeviceId) {
        self.starting.retain(|(other, _)| *other != id);
        self.reserve_periodic(id, 0);
        self.place_periodic(id);
    }

    fn place_periodic(&mut self, id: DeviceId) {
        if let Some(known) = self.sources.get_mut(&self.devices.source(id)) {
            self.devices.place_periodic(id, &mut known.first);
        }
    }

    /// Gives the rates of a source back that were not renewed.
    pub(super) fn periodic_due(&mut self, source: SourceId) {
        let Some(state) = self.sources.get_mut(&source) else { return };
        state.renewal = None;
        loop {
            let first = self.sources.get(&source).map_or(NONE, |state| state.first);
            if first == NONE || self.devices.known(DeviceId(first)).periodic_bps == 0 {
                return;
            }
            self.withdraw_rate(DeviceId(first));
        }
    }

    pub(super) fn reserve_periodic(&mut self, id: DeviceId, rate_bps: u64) {
        let source = self.devices.source(id);
        let device = self.devices.known_mut(id);
        let before_bps = std::mem::replace(&mut device.periodic_bps, rate_bps);
        if std::mem::take(&mut device.has_rate)
            && let Some(known) = self.sources.get_mut(&source)
        {
            known.rates.0 -= 1;
            known.rates.1 -= before_bps;
        }
        let path = &self.paths[usize::from(device.path.0)];
        for link in &path.links {
            let link = &mut self.links[*link];
            link.working.advance(self.now_ns, link.load_bps());
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
