//! Devices: what each may do, and what it has. Idle ones cost their memory only.
use super::{ClassId, DeviceId, DeviceSpec, NONE, PathId, SourceId};

/// What every input of a device looks at: one line of the cache. A weight of 0 says that it is not there.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Device {
    pub(super) rate_max_bps: u64,
    /// The rates of windows that stand.
    pub(super) in_force_bps: u64,
    pub(super) periodic_bps: u64,
    pub(super) delay_ns: u64,
    /// Up to which level of the reference of the first link of its path it has data.
    pub(super) mark: f64,
    pub(super) weight: u32,
    /// Transfers that wait or run.
    pub(super) transfers: u32,
    /// The newest of them.
    pub(super) first: u32,
    /// The first of those that want something; it stands in the queue of the path.
    pub(super) head: u32,
    /// The last to end of its holds.
    pub(super) holds: u32,
    pub(super) path: PathId,
    pub(super) class: ClassId,
    /// Its source was told its rate.
    pub(super) has_rate: bool,
}

/// What few inputs look at.
#[derive(Clone, Debug)]
struct Rest {
    small_bps: u64,
    report_delay_ns: u64,
    /// The class's if the greatest number.
    deadline_ns: u64,
    source: SourceId,
    /// Of the same source, in a ring.
    next: u32,
    before: u32,
    /// What it was granted of the first link of its path, as a [level](super::level) of that.
    lead: f64,
    /// [`Device::mark`] and `lead` of the other links.
    marks: Box<[(f64, f64)]>,
}

/// Devices by their numbers: an array, as the caller numbers them from 0 on.
#[derive(Debug, Default)]
pub(super) struct Devices {
    devices: Vec<Device>,
    rest: Vec<Rest>,
    count: usize,
}

impl Devices {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(id.0 as usize).filter(|device| device.weight > 0)
    }

    /// Returns a device that is there, as that of every transfer is.
    pub(super) fn known(&self, id: DeviceId) -> &Device {
        &self.devices[id.0 as usize]
    }

    pub(super) fn known_mut(&mut self, id: DeviceId) -> &mut Device {
        &mut self.devices[id.0 as usize]
    }

    pub(super) fn source(&self, id: DeviceId) -> SourceId {
        self.rest[id.0 as usize].source
    }

    pub(super) fn deadline_ns(&self, id: DeviceId) -> Option<u64> {
        Some(self.rest[id.0 as usize].deadline_ns).filter(|deadline_ns| *deadline_ns < u64::MAX)
    }

    pub(super) fn report_delay_ns(&self, id: DeviceId) -> u64 {
        self.rest[id.0 as usize].report_delay_ns
    }

    pub(super) fn small_bps(&self, id: DeviceId) -> u64 {
        self.rest[id.0 as usize].small_bps
    }

    /// Makes room for a device, without moving all others each time and without much that is unused.
    fn grow(&mut self, length: usize) {
        if length > self.devices.capacity() {
            let more = (length - self.devices.len()).max(self.devices.len() / 16);
            self.devices.reserve_exact(more);
            self.rest.reserve_exact(more);
        }
        let (source, none) = (SourceId(0), Device::default());
        let (small_bps, deadline_ns, marks) = (0, u64::MAX, Box::default());
        let report_delay_ns = 0;
        let rest = Rest {
            small_bps,
            report_delay_ns,
            deadline_ns,
            source,
            next: NONE,
            before: NONE,
            lead: 0.0,
            marks,
        };
        if length > self.devices.len() {
            self.devices.resize(length, none);
            self.rest.resize(length, rest);
        }
    }

    /// Adds a device or changes what it may do; `first` is one of the ring of its source.
    pub(super) fn set(&mut self, id: DeviceId, spec: &DeviceSpec, links: usize, first: &mut u32) {
        self.grow(id.0 as usize + 1);
        let (device, rest) = (&mut self.devices[id.0 as usize], &mut self.rest[id.0 as usize]);
        let is_new = device.weight == 0;
        if is_new {
            *device = Device { first: NONE, head: NONE, holds: NONE, ..Device::default() };
        }
        if is_new || device.path != spec.path {
            (device.mark, rest.lead) = (0.0, 0.0);
            rest.marks = vec![(0.0, 0.0); links - 1].into();
        }
        (device.path, device.class, device.weight) = (spec.path, spec.class, spec.weight);
        (device.rate_max_bps, device.delay_ns) = (spec.rate_max_bps, spec.delay_ns);
        (rest.source, rest.small_bps) = (spec.source, spec.small_bps);
        rest.report_delay_ns = spec.report_delay_ns;
        rest.deadline_ns = spec.deadline_ns.unwrap_or(u64::MAX);
        if is_new {
            self.count += 1;
            self.enter(id, first);
        }
    }

    pub(super) fn remove(&mut self, id: DeviceId, first: &mut u32) {
        self.quit(id, first);
        self.devices[id.0 as usize] = Device::default();
        self.rest[id.0 as usize].marks = Box::default();
        self.count -= 1;
    }

    /// Puts a device at the end of the ring that `first` begins.
    fn enter(&mut self, id: DeviceId, first: &mut u32) {
        if *first == NONE {
            *first = id.0;
            (self.rest[id.0 as usize].next, self.rest[id.0 as usize].before) = (id.0, id.0);
            return;
        }
        let last = self.rest[*first as usize].before;
        (self.rest[id.0 as usize].next, self.rest[id.0 as usize].before) = (*first, last);
        self.rest[last as usize].next = id.0;
        self.rest[*first as usize].before = id.0;
    }

    fn quit(&mut self, id: DeviceId, first: &mut u32) {
        let (next, before) = (self.rest[id.0 as usize].next, self.rest[id.0 as usize].before);
        self.rest[before as usize].next = next;
        self.rest[next as usize].before = before;
        if *first == id.0 {
            *first = if next == id.0 { NONE } else { next };
        }
    }

    /// Puts a device where its rate belongs in the ring of its source: those that have one are in front.
    pub(super) fn place_periodic(&mut self, id: DeviceId, first: &mut u32) {
        self.quit(id, first);
        self.enter(id, first);
        if self.known(id).periodic_bps > 0 {
            *first = id.0;
        }
    }

    /// Returns the devices of a ring.
    pub(super) fn ring(&self, first: u32) -> impl Iterator<Item = DeviceId> {
        let mut at = first;
        std::iter::from_fn(move || {
            let one = (at != NONE).then_some(DeviceId(at))?;
            let next = self.rest[at as usize].next;
            at = if next == first { NONE } else { next };
            Some(one)
        })
    }

    /// Returns the next device of the same source, after the last one the first.
    pub(super) fn after(&self, id: DeviceId) -> Option<DeviceId> {
        self.rest.get(id.0 as usize).map(|rest| DeviceId(rest.next))
    }

    /// Returns up to which level of the reference of a link of its path a device has data.
    pub(super) fn mark(&self, id: DeviceId, place: usize) -> f64 {
        match place.checked_sub(1) {
            None => self.devices[id.0 as usize].mark,
            Some(at) => self.rest[id.0 as usize].marks.get(at).map_or(0.0, |(mark, _)| *mark),
        }
    }

    pub(super) fn set_mark(&mut self, id: DeviceId, place: usize, mark: f64) {
        match place.checked_sub(1) {
            None => self.devices[id.0 as usize].mark = mark,
            Some(at) => self.rest[id.0 as usize].marks[at].0 = mark,
        }
    }

    /// Returns what a device was granted of a link of its path, as a [level](super::level) of that.
    pub(super) fn lead(&self, id: DeviceId, place: usize) -> f64 {
        let rest = &self.rest[id.0 as usize];
        place.checked_sub(1).map_or(rest.lead, |at| rest.marks[at].1)
    }

    pub(super) fn set_lead(&mut self, id: DeviceId, place: usize, lead: f64) {
        let rest = &mut self.rest[id.0 as usize];
        match place.checked_sub(1) {
            None => rest.lead = lead,
            Some(at) => rest.marks[at].1 = lead,
        }
    }
}

impl Device {
    pub(super) const fn is_used(&self) -> bool {
        self.transfers > 0 || self.periodic_bps > 0
    }

    /// Returns what windows may have.
    pub(super) const fn usable_bps(&self) -> u64 {
        self.rate_max_bps.saturating_sub(self.periodic_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_line_of_the_cache_and_costs_less_than_160_bytes() {
        assert_eq!(size_of::<Device>(), 64);
        assert!((size_of::<Device>() + size_of::<Rest>()) * 17 / 16 < 160);
    }

    #[test]
    fn those_with_a_rate_are_in_front() {
        let (mut devices, mut first) = (Devices::default(), NONE);
        let spec = DeviceSpec::new(SourceId(0), PathId(0), ClassId(0), 1);
        for id in 0..4 {
            devices.set(DeviceId(id), &spec, 1, &mut first);
        }
        let place = |devices: &mut Devices, first: &mut u32, id, rate_bps| {
            devices.known_mut(DeviceId(id)).periodic_bps = rate_bps;
            devices.place_periodic(DeviceId(id), first);
            devices.ring(*first).map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(place(&mut devices, &mut first, 2, 5), [2, 0, 1, 3]);
        assert_eq!(place(&mut devices, &mut first, 3, 5), [3, 2, 0, 1]);
        assert_eq!(place(&mut devices, &mut first, 3, 0), [2, 0, 1, 3]);
        for id in [2, 0, 3, 1] {
            devices.remove(DeviceId(id), &mut first);
        }
        assert_eq!((first, devices.len(), devices.ring(first).count()), (NONE, 0, 0));
    }
}
