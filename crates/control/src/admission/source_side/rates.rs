//! Periodic devices: a rate for each, without asking for each frame, as long as the controller renews it.
//!
//! Transfers of such a device that fit its rate *ride* on it: they are not told to the controller. A rate is used no
//! longer than a lease after the source said what the last answer to it answers: so it is over when a controller that
//! knows nothing of it may grant, whatever was lost.
use super::{Event, Leave, LocalId, SourceSide};
use crate::admission::reserve::rate_of;
use crate::admission::round_trip::Repeat;
use crate::admission::transfer::{duration_ns, sent_bytes};
use crate::admission::wire::{RECORDS_MAX, SourceRecord, SourceState};
use std::collections::{BTreeMap, VecDeque};

/// What is said is known for so many revisions, and answers to earlier ones are not used.
const TELLINGS: usize = 8;
/// What cannot be had is asked for again after this time.
const REFUSED_NS: u64 = 1_000_000_000;
/// A part of a frame that is worth a WRITE.
const PART_BYTES: u64 = 4096;
/// How late a part may begin and still count as begun in time.
const LATE_NS: u64 = 200_000;

/// What was said, with its revision: when, and of how many devices and which rate.
#[derive(Debug, Default)]
struct Tellings {
    revision: u32,
    said: VecDeque<(u32, u64, (u32, u64))>,
    repeat: Option<Repeat>,
}

impl Tellings {
    /// Notes that something is said; returns its revision.
    fn say(&mut self, now_ns: u64, what: (u32, u64), first_ns: u64, lease_ns: u64) -> u32 {
        self.revision = self.revision.saturating_add(1);
        self.said.push_back((self.revision, now_ns, what));
        if self.said.len() > TELLINGS {
            self.said.pop_front();
        }
        match &mut self.repeat {
            None => self.repeat = Some(Repeat::new(now_ns, first_ns)),
            Some(repeat) => repeat.step(now_ns, lease_ns),
        }
        self.revision
    }

    /// Returns when something was said, and what; nothing said before is answered any more, nor this if that `ends` it.
    fn answered(&mut self, revision: u32, ends: bool) -> Option<(u64, (u32, u64))> {
        let at = self.said.iter().position(|(said, ..)| *said == revision)?;
        let (_, at_ns, what) = self.said[at];
        self.said.drain(..at + usize::from(ends));
        self.repeat = None;
        Some((at_ns, what))
    }
}

/// A device that sends so much each period.
#[derive(Debug)]
struct Rate {
    bytes: u64,
    period_ns: u64,
    wish: Tellings,
    /// When it asks; never again while it has a rate.
    due_ns: Option<u64>,
    /// What the controller gave; used until then.
    rate_bps: u64,
    until_ns: u64,
    /// What it could have instead, as the controller says.
    could_bps: Option<u64>,
    /// Transfers that ride, of which not all has begun.
    riding: VecDeque<LocalId>,
    paced_ns: u64,
    busy_ns: u64,
}

impl Rate {
    fn is_in_force(&self, now_ns: u64) -> bool {
        self.rate_bps > 0 && now_ns < self.until_ns
    }

    /// Returns the next part of so much that is left, and when it has left if it begins now.
    fn part(&self, now_ns: u64, left_bytes: u64, config: &super::Config) -> (u64, u64) {
        let part = sent_bytes(config.lease_ns / 4, self.rate_bps) / PART_BYTES * PART_BYTES;
        let bytes = part.max(PART_BYTES).min(config.chunk_bytes).min(left_bytes);
        let takes_ns = duration_ns(bytes, self.rate_bps);
        (bytes, now_ns.max(self.busy_ns).saturating_add(takes_ns))
    }

    const fn state(&self, now_ns: u64) -> SourceState {
        let held_bps = if now_ns < self.until_ns { self.rate_bps } else { 0 };
        SourceState::Periodic { bytes: self.bytes, period_ns: self.period_ns, held_bps }
    }
}

/// All of a source.
#[derive(Debug, Default)]
pub(super) struct Rates {
    devices: BTreeMap<u32, Rate>,
    renewal: Tellings,
    renew_ns: Option<u64>,
}

/// What of a rate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateView {
    /// What the device may send now: bits a second; 0 without a rate.
    pub rate_bps: u64,
    /// What it could have instead of what it wants, if the controller has said so.
    pub could_bps: Option<u64>,
}

impl Rates {
    fn held(&self) -> (u32, u64) {
        let held = self.devices.values().filter(|rate| rate.rate_bps > 0);
        held.fold((0, 0), |(devices, sum_bps), rate| {
            (devices + 1, sum_bps.saturating_add(rate.rate_bps))
        })
    }

    /// Returns whether a device sends so much each period, and has a rate for it or wants one.
    pub(super) fn is_periodic(&self, device: u32) -> bool {
        self.devices.contains_key(&device)
    }

    /// Returns whether some device may send at its rate.
    pub(super) fn any_in_force(&self, now_ns: u64) -> bool {
        self.devices.values().any(|rate| rate.is_in_force(now_ns))
    }

    /// Returns until when some device may send at its rate.
    pub(super) fn last_ns(&self) -> u64 {
        let held = self.devices.values().filter(|rate| rate.rate_bps > 0);
        held.map(|rate| rate.until_ns).max().unwrap_or(0)
    }

    /// Says everything again, in a new session: keeps what is in force.
    pub(super) fn tell_again(&mut self, now_ns: u64) {
        for rate in self.devices.values_mut() {
            rate.wish.said.clear();
            rate.wish.repeat = None;
            let is_told = rate.rate_bps > 0;
            rate.due_ns = Some(if is_told { now_ns } else { now_ns.max(rate.busy_ns) });
        }
        self.renewal.said.clear();
        self.renewal.repeat = None;
    }

    fn want(&mut self, device: u32, bytes: u64, period_ns: u64, now_ns: u64) {
        let known = self.devices.get(&device);
        if bytes == 0 && known.is_none()
            || known.is_some_and(|rate| (rate.bytes, rate.period_ns) == (bytes, period_ns))
        {
            return;
        }
        let rate = self.devices.entry(device).or_insert_with(|| Rate {
            bytes,
            period_ns,
            wish: Tellings::default(),
            due_ns: None,
            rate_bps: 0,
            until_ns: 0,
            could_bps: None,
            riding: VecDeque::new(),
            paced_ns: 0,
            busy_ns: 0,
        });
        // What it had is not used any more before the controller hears that.
        (rate.bytes, rate.period_ns, rate.rate_bps, rate.could_bps) = (bytes, period_ns, 0, None);
        rate.wish.said.clear();
        rate.wish.repeat = None;
        // What has begun goes on at the rate that it had.
        rate.due_ns = Some(now_ns.max(rate.busy_ns));
    }

    pub(super) fn told(
        &mut self,
        device: u32,
        revision: u32,
        (rate_bps, could_bps, lasts_ns): (u64, u64, u64),
        (now_ns, lease_ns): (u64, u64),
    ) {
        let Some(rate) = self.devices.get_mut(&device) else { return };
        let wanted_bps = rate_of(rate.bytes, rate.period_ns);
        // It may be told of a rate that becomes free.
        let waits = rate_bps == 0 && rate.bytes > 0 && could_bps >= wanted_bps;
        let Some((said_ns, _)) = rate.wish.answered(revision, !waits) else { return };
        rate.could_bps = None;
        if rate_bps > 0 && rate_bps == wanted_bps {
            let until_ns = said_ns.saturating_add(lasts_ns.min(lease_ns));
            (rate.rate_bps, rate.due_ns) = (rate_bps, None);
            rate.until_ns = rate.until_ns.max(until_ns);
            self.renew_ns.get_or_insert(now_ns.saturating_add(lease_ns / 3));
            return;
        }
        rate.rate_bps = 0;
        rate.due_ns = match rate.bytes {
            0 => None,
            _ if waits => Some(now_ns.saturating_add(lease_ns / 3)),
            _ => {
                rate.could_bps = Some(could_bps);
                Some(now_ns.saturating_add(REFUSED_NS))
            }
        };
    }

    pub(super) fn renewed(
        &mut self,
        revision: u32,
        told: (u32, u64),
        lasts_ns: u64,
        (now_ns, lease_ns): (u64, u64),
    ) {
        let Some((said_ns, said)) = self.renewal.answered(revision, true) else { return };
        self.renew_ns = Some(now_ns.saturating_add(lease_ns / 3));
        if said != told {
            // It has given something back, or another one leads: each asks anew.
            return self.tell_again(now_ns);
        }
        let until_ns = said_ns.saturating_add(lasts_ns.min(lease_ns));
        for rate in self.devices.values_mut().filter(|rate| rate.rate_bps > 0) {
            rate.until_ns = rate.until_ns.max(until_ns);
        }
    }

    /// Writes what is to be said of rates now.
    pub(super) fn write(
        &mut self,
        now_ns: u64,
        first_ns: u64,
        lease_ns: u64,
        records: &mut Vec<SourceRecord>,
    ) {
        let record = |device, revision, state| SourceRecord {
            device,
            number: 0,
            revision,
            seen: 0,
            ask: true,
            obeys: false,
            finish: false,
            state,
            age_ns: 0,
        };
        let held = self.held();
        if held.0 == 0 {
            self.renew_ns = None;
        }
        let is_due = |due_ns: Option<u64>| due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        if is_due(self.renew_ns) {
            let revision = self.renewal.say(now_ns, held, first_ns, lease_ns);
            self.renew_ns = self.renewal.repeat.map(|repeat| repeat.due_ns);
            let (devices, rate_bps) = held;
            records.push(record(0, revision, SourceState::Renewing { devices, rate_bps }));
        }
        for (device, rate) in &mut self.devices {
            if records.len() == RECORDS_MAX {
                return;
            }
            if is_due(rate.due_ns) {
                let revision = rate.wish.say(now_ns, (0, 0), first_ns, lease_ns);
                rate.due_ns = rate.wish.repeat.map(|repeat| repeat.due_ns);
                records.push(record(*device, revision, rate.state(now_ns)));
            }
        }
    }

    pub(super) fn next_ns(
        &self,
        (now_ns, is_linked): (u64, bool),
        config: &super::Config,
        transfers: &super::Transfers,
    ) -> Option<u64> {
        let said = self.devices.values().filter_map(|rate| rate.due_ns).chain(self.renew_ns);
        let said = said.filter(|_| is_linked);
        let goes = self.devices.values().filter_map(|rate| {
            let first = transfers.get(rate.riding.front()?)?;
            let (_, ends_ns) = rate.part(now_ns.max(rate.paced_ns), first.left_to_begin(), config);
            let begins = first.may_ride() && ends_ns <= rate.until_ns;
            Some(if begins { rate.paced_ns } else { rate.until_ns })
        });
        said.chain(goes).min()
    }
}

impl SourceSide {
    /// Returns what is known of the rate of a periodic device.
    #[must_use]
    pub fn rate(&self, device: u32) -> Option<RateView> {
        let rate = self.rates.devices.get(&device).filter(|rate| rate.bytes > 0)?;
        let rate_bps = if rate.is_in_force(self.now_ns) { rate.rate_bps } else { 0 };
        Some(RateView { rate_bps, could_bps: rate.could_bps })
    }

    pub(super) fn want_rate(&mut self, device: u32, bytes: u64, period_ns: u64) {
        let period_ns = if bytes == 0 { 0 } else { period_ns.max(1) };
        self.rates.want(device, bytes, period_ns, self.now_ns);
    }

    /// Lets a new transfer ride on the rate of its device, if there is one and no more waits for it than two periods
    /// carry.
    pub(super) fn try_ride(&mut self, id: LocalId) {
        let (now_ns, lease_ns) = (self.now_ns, self.config.lease_ns);
        let Some(rate) = self.rates.devices.get_mut(&id.device) else { return };
        let waiting = rate.riding.iter().filter_map(|id| self.transfers.get(id));
        let waiting: u64 = waiting.map(super::Transfer::left_bytes).sum();
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let bytes = transfer.left_bytes();
        let fits = waiting.saturating_add(bytes) <= rate.bytes.saturating_mul(2)
            && duration_ns(bytes.min(PART_BYTES), rate.rate_bps) <= lease_ns / 4;
        if rate.is_in_force(now_ns) && fits && transfer.ride() {
            rate.riding.push_back(id);
        }
    }

    /// Forgets a transfer that went at the rate of its device, when all has left.
    pub(super) fn forget_ridden(&mut self, id: LocalId) {
        if self.transfers.get(&id).is_some_and(super::Transfer::has_ridden) {
            self.transfers.remove(&id);
        }
    }

    /// Begins what rides and is due; whose rate is over asks.
    pub(super) fn ride(&mut self) {
        let (now_ns, config) = (self.now_ns, self.config);
        for rate in self.rates.devices.values_mut() {
            let in_force = rate.is_in_force(now_ns);
            while let Some(id) = rate.riding.front().copied() {
                let Some(transfer) = self.transfers.get_mut(&id).filter(|one| one.is_riding())
                else {
                    rate.riding.pop_front();
                    continue;
                };
                if !in_force {
                    transfer.dismount();
                    rate.riding.pop_front();
                    continue;
                }
                if transfer.left_to_begin() == 0 {
                    rate.riding.pop_front();
                    continue;
                }
                let (bytes, ends_ns) = rate.part(now_ns, transfer.left_to_begin(), &config);
                if !transfer.may_ride() || now_ns < rate.paced_ns || ends_ns > rate.until_ns {
                    break;
                }
                let due_ns = if now_ns - rate.paced_ns < LATE_NS { rate.paced_ns } else { now_ns };
                rate.paced_ns = due_ns.saturating_add(duration_ns(bytes, rate.rate_bps));
                rate.busy_ns = ends_ns;
                let chunk = transfer.begin_riding(now_ns, (bytes, rate.rate_bps, ends_ns));
                self.events.push_back(Event::Send { id, chunk, leave: Leave::Rate });
            }
        }
    }
}
