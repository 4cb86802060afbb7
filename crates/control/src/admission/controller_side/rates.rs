//! Rates of periodic devices: what sources want and renew, and what they are told.
use super::ControllerSide;
use super::view::RateView;
use super::work::Wish;
use crate::admission::reserve::rate_of;
use crate::admission::wire::{ControllerRecord, SourceRecord, SourceState, Told};
use crate::admission::{DeviceId, Input, SourceId};

/// Two clocks differ by this part of a time at most.
const DRIFT_PARTS: u64 = 4000;

impl ControllerSide {
    /// Takes a record that is not of a transfer.
    pub(super) fn rate_record(&mut self, source: SourceId, record: &SourceRecord) {
        match record.state {
            SourceState::Periodic { bytes, period_ns, held_bps } => {
                let held = held_bps == rate_of(bytes, period_ns);
                self.wish(source, record, (bytes, period_ns), held);
            }
            SourceState::Renewing { .. } => {
                let Some(session) = self.sessions.get_mut(&source) else { return };
                if record.revision > session.renewal {
                    session.renewal = record.revision;
                    self.control(Input::Renew { source });
                }
            }
            SourceState::Waiting { .. }
            | SourceState::Running { .. }
            | SourceState::Done
            | SourceState::Cancelled
            | SourceState::Delivered { .. } => {}
        }
    }

    fn wish(
        &mut self,
        source: SourceId,
        record: &SourceRecord,
        (bytes, period_ns): (u64, u64),
        held: bool,
    ) {
        let quiet = self.is_quiet();
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let Some(device) = session.devices.get(record.device as usize).copied() else {
            return self.answer_rate(source, record.device, record.revision, (0, 0, 0));
        };
        let known = session.work.wishes.entry(record.device).or_default();
        if record.revision <= known.revision {
            return;
        }
        let wanted_bps = rate_of(bytes, period_ns);
        *known = Wish { revision: record.revision, answered: false, wanted_bps };
        if bytes == 0 {
            session.work.wishes.remove(&record.device);
            self.control(Input::Periodic { device, bytes, period_ns: 1, held: false });
            return self.answer_rate(source, record.device, record.revision, (0, 0, 0));
        }
        // Until then only what an earlier controller gave goes on.
        if held || !quiet {
            let held = held && quiet;
            self.control(Input::Periodic { device, bytes, period_ns, held });
        }
        let Some(session) = self.sessions.get(&source) else { return };
        if session.work.wishes.get(&record.device).is_some_and(|wish| !wish.answered) {
            let could_bps = rate_of(bytes, period_ns);
            self.answer_rate(source, record.device, record.revision, (0, could_bps, 0));
        }
    }

    /// Tells the rate of a device, as an answer to what its source said last of it.
    pub(super) fn say_rate(
        &mut self,
        device: DeviceId,
        rate_bps: u64,
        could_bps: u64,
        until_ns: u64,
    ) {
        let lasts_ns = self.lasts_ns(until_ns);
        let Some((source, place)) = self.owner(device) else { return };
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let Some(wish) = session.work.wishes.get_mut(&place) else { return };
        wish.answered = true;
        let revision = wish.revision;
        self.answer_rate(source, place, revision, (rate_bps, could_bps, lasts_ns));
    }

    pub(super) fn say_renewed(
        &mut self,
        source: SourceId,
        (devices, rate_bps): (u32, u64),
        until_ns: u64,
    ) {
        let lasts_ns = if devices > 0 { self.lasts_ns(until_ns) } else { 0 };
        let told = Told::Renewed { devices, rate_bps, lasts_ns };
        let Some(session) = self.sessions.get(&source) else { return };
        let revision = session.renewal;
        self.push_answer(source, 0, revision, told);
    }

    /// Returns for how long something may be used from when its source said what came now: its clock may be slower,
    /// and what it sends may be held up longer than what it said.
    pub(super) fn lasts_ns(&self, until_ns: u64) -> u64 {
        let left_ns = until_ns.saturating_sub(self.now_ns);
        let guard_ns = self.guards_ns.iter().max().copied().unwrap_or(0);
        left_ns.saturating_sub(left_ns / DRIFT_PARTS).saturating_sub(guard_ns)
    }

    fn answer_rate(
        &mut self,
        source: SourceId,
        place: u32,
        revision: u32,
        (rate_bps, could_bps, lasts_ns): (u64, u64, u64),
    ) {
        let told = match lasts_ns {
            0 => Told::Rate { rate_bps: 0, could_bps, lasts_ns },
            _ => Told::Rate { rate_bps, could_bps, lasts_ns },
        };
        self.push_answer(source, place, revision, told);
    }

    fn push_answer(&mut self, source: SourceId, device: u32, seen: u32, told: Told) {
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let (number, revision, ask, missed_ns) = (0, 0, false, None);
        let record = ControllerRecord { device, number, revision, seen, ask, told, missed_ns };
        session.work.answers.push(record);
        self.enqueue(source);
    }

    /// Returns what a periodic device of a source wants, has and could have; `place` is its place among those that the
    /// source registered. `None` where it wants no rate.
    #[must_use]
    pub fn rate(&self, source: SourceId, place: usize) -> Option<RateView> {
        let session = self.sessions.get(&source)?;
        let wish = session.work.wishes.get(&u32::try_from(place).ok()?)?;
        let (rate_bps, could_bps) = self.controller.rate_of(*session.devices.get(place)?)?;
        Some(RateView { wanted_bps: wish.wanted_bps, rate_bps, could_bps })
    }

    /// Returns the rates that periodic devices of a source have: how many, and their sum in bits a second.
    #[must_use]
    pub fn rates(&self, source: SourceId) -> (u32, u64) {
        self.controller.rates(source)
    }
}
