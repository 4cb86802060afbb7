//! What sources say, as inputs of the controller.
use super::ControllerSide;
use super::entry::{Entry, Held, Key, Said};
use crate::admission::transfer::sent_bytes;
use crate::admission::window::REST_BYTES;
use crate::admission::wire::{ControllerRecord, Header, Reason, SourceRecord, SourceState, Told};
use crate::admission::{Input, SourceId, TransferId};

impl ControllerSide {
    pub(super) fn record(&mut self, source: SourceId, header: &Header, record: &SourceRecord) {
        match record.state {
            SourceState::Periodic { .. } | SourceState::Renewing { .. } => {
                return self.rate_record(source, record);
            }
            SourceState::Delivered { acknowledged_bytes, resent_bytes } => {
                let totals = (record.revision, acknowledged_bytes, resent_bytes);
                return self.delivered(source, totals);
            }
            SourceState::Waiting { .. }
            | SourceState::Running { .. }
            | SourceState::Done
            | SourceState::Cancelled => {}
        }
        let key = Key { device: record.device, number: record.number };
        let (now_ns, most) = (self.now_ns, self.transfers_max);
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let over = matches!(record.state, SourceState::Done | SourceState::Cancelled);
        let known = session.devices.get(record.device as usize).copied();
        let is_new = !session.work.entries.contains_key(&key);
        let Some(device) = known else {
            return self.answer(source, record, Told::Refused(Reason::UnknownDevice));
        };
        if is_new && over {
            // It is repeated as the answer was lost, or nothing is known of it.
            return self.answer(source, record, Told::Ended);
        }
        if is_new && header.number() < session.ended {
            // It may have ended since: if not, its source asks again.
            return;
        }
        if is_new && session.work.entries.len() >= most {
            return self.answer(source, record, Told::Refused(Reason::TooManyTransfers));
        }
        // Those that are over may wait for an answer, and nobody looks whether their source is there.
        if is_new {
            self.watch(source);
        }
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let same_term = header.term == self.term;
        let before = if same_term { record.seen.max(session.floor) } else { session.floor };
        let entry = session.work.entries.entry(key).or_insert_with(|| Entry::new(before));
        if same_term && let Some(sent_ns) = entry.note_seen(record.seen) {
            session.round_trip.sample(now_ns, now_ns - sent_ns);
        }
        let fresh = record.revision > entry.heard;
        if fresh && !entry.is_over() {
            entry.heard = record.revision;
            let obeys = same_term && record.obeys && record.seen == entry.revision;
            let inner = obeys.then_some(entry.inner);
            let said = Heard { id: TransferId { device, number: key.number }, inner, is_new };
            self.apply(source, header, record, said);
        } else if fresh {
            entry.heard = record.revision;
            if over {
                self.count_end(source, key, false);
                self.retire(source, header, record);
            }
        }
        if record.ask {
            self.make_ready(source, key);
        }
        self.rearm(source, key);
    }

    /// Answers a record about a transfer that is not kept.
    fn answer(&mut self, source: SourceId, record: &SourceRecord, told: Told) {
        let SourceRecord { device, number, revision: seen, ask, .. } = *record;
        let Some(session) = self.sessions.get_mut(&source) else { return };
        if ask {
            let (revision, missed_ns) = (1, None);
            let record =
                ControllerRecord { device, number, revision, seen, ask: false, told, missed_ns };
            session.work.answers.push(record);
            self.enqueue(source);
        }
    }

    fn apply(&mut self, source: SourceId, header: &Header, record: &SourceRecord, heard: Heard) {
        let (Heard { id, inner, is_new }, finish) = (heard, record.finish);
        let key = Key { device: record.device, number: record.number };
        match record.state {
            SourceState::Waiting { left_bytes } => {
                if let Some(entry) = self.entry(source, key)
                    && (inner.is_some() || is_new)
                {
                    (entry.said, entry.until_ns) = (Said::Waiting, 0);
                }
                // What an earlier controller granted is over, and what of others is not known yet: it is held.
                if let Some(revision) = inner.filter(|_| !self.is_quiet()) {
                    self.control(Input::Paused { transfer: id, left_bytes, revision });
                }
                let born_ns = self.born_ns(source, header, record.age_ns);
                self.ask(source, key, Held { left_bytes, born_ns, finish });
            }
            SourceState::Running { left_bytes, rate_bps, until_ns } => {
                if is_new {
                    let now_ns = self.now_ns;
                    let Some(session) = self.sessions.get(&source) else { return };
                    let until_ns = session.clock.arrival_ns(now_ns, until_ns);
                    let age_ns = now_ns.saturating_sub(self.born_ns(source, header, record.age_ns));
                    if let Some(entry) = self.entry(source, key) {
                        entry.until_ns = until_ns;
                    }
                    self.control(Input::Adopt {
                        transfer: id,
                        left_bytes,
                        age_ns,
                        rate_bps,
                        until_ns,
                        finish,
                    });
                } else if self.is_quiet() {
                    let born_ns = self.born_ns(source, header, record.age_ns);
                    self.ask(source, key, Held { left_bytes, born_ns, finish });
                } else if let Some(revision) = inner {
                    self.control(Input::Progress { transfer: id, left_bytes, revision });
                    let fits = sent_bytes(until_ns.saturating_sub(header.stamp_ns), rate_bps);
                    if left_bytes > fits.saturating_add(REST_BYTES) {
                        return self.control(Input::Behind { transfer: id, revision });
                    }
                    let Some(session) = self.sessions.get(&source) else { return };
                    let until_ns = session.clock.arrival_ns(self.now_ns, until_ns);
                    self.control(Input::Begun { transfer: id, until_ns, revision });
                }
            }
            SourceState::Done => {
                self.count_end(source, key, true);
                self.retire(source, header, record);
                self.control(Input::Done { transfer: id });
            }
            SourceState::Cancelled => {
                self.retire(source, header, record);
                self.control(Input::Cancel { transfer: id });
            }
            SourceState::Periodic { .. }
            | SourceState::Renewing { .. }
            | SourceState::Delivered { .. } => {}
        }
    }

    /// Takes what became of all that a source has sent; the first one of it says from where on to count. Older ones were
    /// held up on their way.
    fn delivered(&mut self, source: SourceId, totals: (u32, u64, u64)) {
        let Some(session) = self.sessions.get_mut(&source) else { return };
        if session.delivered.as_ref().is_some_and(|before| before.0 >= totals.0) {
            return;
        }
        let before = session.delivered.replace(Box::new(totals)).map(|before| *before);
        let path = session.devices.first().and_then(|device| self.controller.device(*device));
        if let (Some((_, acknowledged, resent)), Some((path, _))) = (before, path) {
            let acknowledged_bytes = totals.1.saturating_sub(acknowledged);
            let resent_bytes = totals.2.saturating_sub(resent);
            self.control(Input::Delivered { source, path, acknowledged_bytes, resent_bytes });
        }
    }

    /// Returns when a transfer was generated, seen from here.
    fn born_ns(&self, source: SourceId, header: &Header, age_ns: u64) -> u64 {
        let clock = self.sessions.get(&source).map(|session| &session.clock);
        let sent_ns = clock.map_or(self.now_ns, |clock| {
            let held_ns = clock.to_source_ns(self.now_ns).saturating_sub(header.stamp_ns);
            self.now_ns.saturating_sub(held_ns)
        });
        sent_ns.saturating_sub(age_ns)
    }

    /// Asks the controller, or holds it until windows can be told to this source.
    fn ask(&mut self, source: SourceId, key: Key, held: Held) {
        let (now_ns, quiet) = (self.now_ns, self.is_quiet());
        let Some(session) = self.sessions.get_mut(&source) else { return };
        if quiet || !session.clock.is_learnt(now_ns) {
            let before =
                session.work.entries.get_mut(&key).and_then(|entry| entry.held.replace(held));
            session.work.held += usize::from(before.is_none());
            return;
        }
        let device = session.devices[key.device as usize];
        let transfer = TransferId { device, number: key.number };
        let age_ns = now_ns.saturating_sub(held.born_ns);
        let bytes = held.left_bytes;
        self.control(if held.finish {
            Input::Finish { transfer, bytes, age_ns }
        } else {
            Input::Request { transfer, bytes, age_ns }
        });
    }

    /// Tells the controller what was held for a source.
    pub(super) fn release(&mut self, source: SourceId) {
        let (now_ns, quiet) = (self.now_ns, self.is_quiet());
        let Some(session) = self.sessions.get_mut(&source) else { return };
        if session.work.held == 0 || quiet || !session.clock.is_learnt(now_ns) {
            return;
        }
        session.work.held = 0;
        let held = |(key, entry): (&Key, &mut Entry)| Some((*key, entry.held.take()?));
        let held: Vec<_> = session.work.entries.iter_mut().filter_map(held).collect();
        held.into_iter().for_each(|(key, held)| self.ask(source, key, held));
    }

    /// Forgets a transfer that has ended, and says so.
    fn retire(&mut self, source: SourceId, header: &Header, record: &SourceRecord) {
        let key = Key { device: record.device, number: record.number };
        self.forget(source, key);
        if let Some(session) = self.sessions.get_mut(&source) {
            session.ended = session.ended.max(header.number());
        }
        self.unwatch(source);
        self.answer(source, record, Told::Ended);
    }

    fn forget(&mut self, source: SourceId, key: Key) -> Option<Entry> {
        let session = self.sessions.get_mut(&source)?;
        let entry = session.work.entries.remove(&key)?;
        session.work.held -= usize::from(entry.held.is_some());
        if let Some((_, timer)) = entry.repeat {
            self.timers.remove(timer);
        }
        Some(entry)
    }

    /// Takes back what a silent source asked for; windows that may be in use run out.
    pub(super) fn withdraw(&mut self, source: SourceId) {
        let now_ns = self.now_ns;
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let gone = |(_, entry): &(&Key, &Entry)| !entry.is_over() && entry.until_ns <= now_ns;
        let gone: Vec<Key> =
            session.work.entries.iter().filter(gone).map(|(key, _)| *key).collect();
        for key in gone {
            let Some(session) = self.sessions.get_mut(&source) else { return };
            let device = session.devices[key.device as usize];
            if let Some(entry) = self.forget(source, key)
                && let Some(session) = self.sessions.get_mut(&source)
            {
                session.floor = session.floor.max(entry.revision);
            }
            self.control(Input::Cancel { transfer: TransferId { device, number: key.number } });
        }
    }

    pub(super) fn entry(&mut self, source: SourceId, key: Key) -> Option<&mut Entry> {
        self.sessions.get_mut(&source).and_then(|session| session.work.entries.get_mut(&key))
    }
}

/// What a record is about.
#[derive(Clone, Copy)]
struct Heard {
    id: TransferId,
    /// The controller's revision that the source obeys, if it is the latest.
    inner: Option<u32>,
    is_new: bool,
}
