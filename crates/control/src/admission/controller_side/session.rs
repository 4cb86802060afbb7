//! A source: its keys, its devices, its clock, its transfers.
use super::clock::ClockMap;
use super::devices::Devices;
use super::work::Work;
use super::{ControllerSide, Event, SECOND_NS, Timer};
use crate::admission::round_trip::RoundTrip;
use crate::admission::timers::TimerId;
use crate::admission::wire::{Codes, ControllerRecord, Header, ROOT_BYTES, SourceRecord};
use crate::admission::{DeviceId, DeviceSpec, Input, SourceId};
use std::net::SocketAddr;

/// Delays differ by this at least.
pub(super) const SPREAD_NS_MIN: u64 = 50_000;
/// A round trip counts as no more than this.
pub(super) const ROUND_TRIP_NS_MAX: u64 = 50_000_000;
/// A source that is silent for longer has to register again.
const FORGET_NS: u64 = 30 * SECOND_NS;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) codes: Codes<ControllerRecord, SourceRecord>,
    pub(super) address: Option<SocketAddr>,
    pub(super) clock: ClockMap,
    pub(super) round_trip: RoundTrip,
    /// What its devices are registered with.
    pub(super) delay_ns: u64,
    pub(super) devices: Devices,
    pub(super) work: Work,
    /// The newest renewal that came.
    pub(super) renewal: u32,
    /// Of its reports of what was delivered: the newest revision, and its totals.
    pub(super) delivered: Option<Box<(u32, u64, u64)>>,
    /// Is among those that are to be sent something.
    pub(super) queued: bool,
    /// It is to be told who leads: its datagrams are of an earlier term, or of none.
    pub(super) is_untold: bool,
    pub(super) heard_ns: u64,
    /// Nothing is granted to it: it was not heard for a while.
    pub(super) silent: bool,
    pub(super) silence: Option<TimerId>,
    /// The newest datagram that said of a transfer that it is over ([`Header::number`]). What one before it says of a
    /// transfer that is not known may be of one that has ended since.
    pub(super) ended: u64,
    /// What was said about transfers that are not known any more had revisions up to this.
    pub(super) floor: u32,
}

impl Session {
    /// Needs little memory again, if its source has nothing on its way and no rates.
    pub(super) fn rest(&mut self) {
        if !self.queued && self.work.rest() {
            self.codes.rest();
        }
    }
}

impl ControllerSide {
    pub(super) fn register(
        &mut self,
        source: SourceId,
        root: &[u8; ROOT_BYTES],
        round_trip_ns: u64,
        specs: Vec<DeviceSpec>,
    ) {
        let before = self.sessions.get(&source).map(|session| session.devices.len());
        if before.is_some_and(|count| count != specs.len()) {
            self.leave(source);
        }
        let guard_ns = specs.iter().map(|spec| self.guard_ns(spec)).max();
        let guard_ns = guard_ns.unwrap_or(SPREAD_NS_MIN);
        let round_trip_ns = round_trip_ns.min(ROUND_TRIP_NS_MAX);
        let mut session = Session {
            codes: Codes::new(root),
            address: None,
            clock: ClockMap::new(guard_ns),
            round_trip: RoundTrip::new(self.now_ns, round_trip_ns),
            delay_ns: round_trip_ns.max(guard_ns),
            devices: Devices::default(),
            work: Work::default(),
            renewal: 0,
            delivered: None,
            queued: false,
            is_untold: false,
            heard_ns: self.now_ns,
            silent: false,
            silence: None,
            ended: 0,
            floor: 0,
        };
        if let Some(before) = self.sessions.remove(&source) {
            // The same process: its clock, its transfers and what it was told stand.
            session.devices = before.devices;
            session.clock = before.clock.with_spread_ns(guard_ns);
            // Under the new keys nothing was said yet of what has ended.
            session.work = before.work;
            session.work.answers.clear();
            session.renewal = before.renewal;
            session.delivered = before.delivered;
            session.floor = before.floor;
            session.silence = before.silence;
            session.queued = before.queued;
        } else {
            session.devices = (0..).zip(&specs).map(|(at, _)| self.take(source, at)).collect();
        }
        let (devices, delay_ns) = (session.devices.clone(), session.delay_ns);
        self.sessions.insert(source, Box::new(session));
        for (device, spec) in devices.iter().copied().zip(specs) {
            let spec = DeviceSpec { source, delay_ns, report_delay_ns: 0, ..spec };
            self.control(Input::Register { device, spec });
        }
        self.watch(source);
    }

    /// Takes a number for a device.
    fn take(&mut self, source: SourceId, at: u32) -> DeviceId {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.owners.push(None);
            u32::try_from(self.owners.len() - 1).unwrap_or(u32::MAX)
        });
        self.owners[number as usize] = Some((source, at));
        DeviceId(number)
    }

    pub(super) fn guard_ns(&self, spec: &DeviceSpec) -> u64 {
        let path = self.paths.get(usize::from(spec.path.0));
        let guards = path.into_iter().flatten().map(|link| self.guards_ns[usize::from(link.0)]);
        guards.max().unwrap_or(SPREAD_NS_MIN)
    }

    pub(super) fn leave(&mut self, source: SourceId) {
        let Some(session) = self.sessions.remove(&source) else { return };
        let mut work = session.work;
        let entries = std::mem::take(&mut work.entries);
        let repeats = entries.into_values().filter_map(|entry| entry.repeat);
        let timers = repeats.map(|(_, timer)| timer).chain(session.silence);
        timers.for_each(|timer| self.timers.remove(timer));
        self.control(Input::Leave { source });
        for device in session.devices.iter().copied() {
            self.owners[device.0 as usize] = None;
            self.unused.push(device.0);
        }
    }

    /// Notes that a source is there.
    pub(super) fn hear(&mut self, source: SourceId, from: SocketAddr, header: &Header) {
        let now_ns = self.now_ns;
        let Some(session) = self.sessions.get_mut(&source) else { return };
        session.address = Some(from);
        session.heard_ns = now_ns;
        session.silent = false;
        session.clock.sample(now_ns, header.stamp_ns);
        let least_ns = session.round_trip.least_ns().min(ROUND_TRIP_NS_MAX);
        let delay_ns = least_ns.max(session.clock.spread_ns());
        if delay_ns > session.delay_ns / 4 * 5 || delay_ns < session.delay_ns / 4 * 3 {
            session.delay_ns = delay_ns;
            self.control(Input::Delay { source, delay_ns });
        }
        if self.stands_by() {
            return;
        }
        self.tell_who_leads(source, header.term);
        if header.term > self.term && !std::mem::replace(&mut self.superseded, true) {
            self.events.push_back(Event::Superseded(header.term));
        }
    }

    /// Sets the time at which a source counts as silent: soon where it wants something, else when it is forgotten.
    pub(super) fn watch(&mut self, source: SourceId) {
        let due_ns = self.now_ns.saturating_add(self.lease_ns);
        let Some(session) = self.sessions.get_mut(&source) else { return };
        match session.silence {
            None => session.silence = Some(self.timers.set(due_ns, Timer::Silence(source))),
            Some(timer) if self.timers.due_ns(timer) > due_ns => self.timers.reset(timer, due_ns),
            Some(_) => {}
        }
    }

    /// Looks after a source only when it would be forgotten, if it wants nothing any more.
    pub(super) fn unwatch(&mut self, source: SourceId) {
        let Some(session) = self.sessions.get(&source) else { return };
        if let Some(timer) = session.silence.filter(|_| session.work.entries.is_empty()) {
            self.timers.reset(timer, session.heard_ns.saturating_add(FORGET_NS));
        }
    }

    pub(super) fn silence_due(&mut self, source: SourceId) {
        let (now_ns, lease_ns) = (self.now_ns, self.lease_ns);
        let Some(session) = self.sessions.get_mut(&source) else { return };
        session.silence = None;
        let silent_ns = now_ns - session.heard_ns;
        if silent_ns >= FORGET_NS {
            self.leave(source);
            return self.events.push_back(Event::Forgotten(source));
        }
        let live = session.work.entries.values().any(|entry| !entry.is_over());
        let due_ns = if !live {
            session.heard_ns + FORGET_NS
        } else if silent_ns < lease_ns {
            session.heard_ns + lease_ns
        } else {
            session.silent = true;
            self.withdraw(source);
            now_ns + lease_ns
        };
        if let Some(session) = self.sessions.get_mut(&source) {
            session.silence = Some(self.timers.set(due_ns, Timer::Silence(source)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are many sources, most of them idle: docs/results/control.md has what one takes in all.
    #[test]
    fn a_source_that_wants_nothing_takes_little_memory() {
        assert!(size_of::<Session>() <= 408, "{}", size_of::<Session>());
    }
}
