//! Periodic streams at their sources: they send at their rates as long as these hold.
use super::outcome::Covered;
use super::source::Stretch;
use catchment_control::admission::{DeviceId, Input, SourceId};
use std::collections::BTreeMap;

/// How often a source renews the rates of its devices; they hold for a second.
pub(super) const RENEW_NS: u64 = 500_000_000;

/// A device that sends this much each period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Periodic {
    pub(super) source: SourceId,
    pub(super) device: DeviceId,
    pub(super) bytes: u64,
    pub(super) period_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    from_ns: u64,
    until_ns: u64,
    rate_bps: u64,
}

/// All periodic streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By source: its devices, until it asks for them.
    new: BTreeMap<SourceId, Vec<Periodic>>,
    /// By source: its devices.
    of: BTreeMap<SourceId, Vec<DeviceId>>,
    /// By device, with the time since when it sends.
    leases: Vec<Option<Lease>>,
    wanted_bps: u64,
    covered: Covered,
}

impl Streams {
    pub(super) fn new(all: &[Periodic]) -> Self {
        let mut streams = Self::default();
        for one in all {
            streams.new.entry(one.source).or_default().push(*one);
            streams.of.entry(one.source).or_default().push(one.device);
            streams.wanted_bps += one.bytes * 8_000_000_000 / one.period_ns;
        }
        let last = all.iter().map(|one| one.device.0 as usize + 1).max().unwrap_or(0);
        streams.leases = vec![None; last];
        streams
    }

    /// Returns when each source asks: one after the other, over the time of a renewal.
    pub(super) fn begins(&self) -> Vec<(SourceId, u64)> {
        let count = self.new.len().max(1) as u64;
        let sources = self.new.keys().zip(0..);
        sources.map(|(source, at)| (*source, RENEW_NS * at / count)).collect()
    }

    /// Returns what a source says the first time; nothing later.
    pub(super) fn ask(&mut self, source: SourceId) -> Vec<Input> {
        let devices = self.new.remove(&source).unwrap_or_default().into_iter();
        let input = |Periodic { device, bytes, period_ns, .. }| Input::Periodic {
            device,
            bytes,
            period_ns,
            held: false,
        };
        devices.map(input).collect()
    }

    /// Takes a rate; returns the stretch that it does not continue.
    pub(super) fn lease(
        &mut self,
        now_ns: u64,
        (device, rate_bps, until_ns): (DeviceId, u64, u64),
    ) -> Option<(u32, Stretch)> {
        let known = &mut self.leases[device.0 as usize];
        let new = Lease { from_ns: now_ns, until_ns, rate_bps };
        let before = match known {
            Some(lease) if lease.until_ns >= now_ns && lease.rate_bps == rate_bps => {
                lease.until_ns = until_ns;
                return None;
            }
            other => other.replace(new)?,
        };
        self.covered.gap_ns = self.covered.gap_ns.max(now_ns.saturating_sub(before.until_ns));
        Some((device.0, self.stretch(before, now_ns)))
    }

    /// Takes a renewal: what holds of the rates of a source goes on.
    pub(super) fn renewed(&mut self, source: SourceId, now_ns: u64, until_ns: u64) {
        for device in self.of.get(&source).into_iter().flatten() {
            let known = self.leases[device.0 as usize].as_mut();
            if let Some(lease) = known.filter(|lease| lease.until_ns >= now_ns) {
                lease.until_ns = until_ns;
            }
        }
    }

    fn stretch(&mut self, lease: Lease, end_ns: u64) -> Stretch {
        let Lease { from_ns, until_ns, rate_bps } = lease;
        let until_ns = until_ns.min(end_ns).max(from_ns);
        self.covered.bits += rate_bps as f64 * (until_ns - from_ns) as f64 / 1e9;
        Stretch { from_ns, until_ns, rate_bps }
    }

    /// Returns the last stretch of each, and what all might send.
    pub(super) fn finish(&mut self, end_ns: u64) -> (Vec<(u32, Stretch)>, Covered) {
        let leases = std::mem::take(&mut self.leases);
        let last = (0..).zip(leases).filter_map(|(device, lease)| Some((device, lease?)));
        let stretches = last.map(|(device, lease)| (device, self.stretch(lease, end_ns))).collect();
        self.covered.wanted_bits = self.wanted_bps as f64 * end_ns as f64 / 1e9;
        (stretches, self.covered)
    }
}
