//! Datagrams from and to the controller.
use super::transfer::{Course, Transfer};
use super::{Event, LocalId, SourceSide};
use crate::admission::round_trip::Repeat;
use crate::admission::wire::{
    ControllerRecord, Header, Kind, RECORDS_MAX, SourceRecord, SourceState, Told,
};

impl SourceSide {
    pub(super) fn datagram(&mut self, bytes: &[u8]) {
        let Ok(header) = Header::read(bytes) else {
            self.counts.refused += 1;
            return;
        };
        if header.kind == Kind::Hint {
            return self.hint(&header);
        }
        if header.term < self.term {
            self.counts.old_term += 1;
            return;
        }
        let Some(link) = &mut self.link else { return };
        let mut records: Vec<ControllerRecord> = Vec::new();
        if link.codes.open(bytes, &mut records).is_err() || header.source != link.source {
            self.counts.refused += 1;
            return;
        }
        self.counts.opened += 1;
        self.unanswered_ns = None;
        records.iter().for_each(|record| self.record(record));
    }

    fn hint(&mut self, header: &Header) {
        let Some(link) = &self.link else { return };
        if link.is_hinted(self.now_ns, header) {
            self.counts.hints += 1;
            self.register();
        }
    }

    /// Says that the source has to register again, once in a lease.
    pub(super) fn register(&mut self) {
        let lately = |said_ns: u64| self.now_ns - said_ns < self.config.lease_ns;
        if !self.registering_ns.is_some_and(lately) {
            self.registering_ns = Some(self.now_ns);
            self.events.push_back(Event::Register);
        }
    }

    fn record(&mut self, record: &ControllerRecord) {
        let times = (self.now_ns, self.config.lease_ns);
        if matches!(record.told, Told::Granted { .. } | Told::Rate { rate_bps: 1.., .. }) {
            self.going_on = None;
        }
        match record.told {
            Told::Rate { rate_bps, could_bps, lasts_ns } => {
                let told = (rate_bps, could_bps, lasts_ns);
                return self.rates.told(record.device, record.seen, told, times);
            }
            Told::Renewed { devices, rate_bps, lasts_ns } => {
                return self.rates.renewed(record.seen, (devices, rate_bps), lasts_ns, times);
            }
            Told::Waiting
            | Told::Granted { .. }
            | Told::Paused
            | Told::Ended
            | Told::Dropped
            | Told::Refused(_) => {}
        }
        let id = LocalId { device: record.device, number: record.number };
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return self.answer_unknown(record);
        };
        if let Some(told_ns) = transfer.note_acked(record.seen, times)
            && let Some(link) = &mut self.link
        {
            link.round_trip.sample(self.now_ns, self.now_ns - told_ns);
        }
        let dropped = record.told == Told::Dropped;
        let is_news = dropped || record.missed_ns.is_some() && !transfer.missed;
        if transfer.course == Course::Live && is_news {
            transfer.missed = true;
            let estimate_ns = record.missed_ns.unwrap_or(self.now_ns);
            self.events.push_back(Event::Missed { id, estimate_ns, dropped });
        }
        transfer.ready |= record.ask;
        match record.told {
            Told::Waiting | Told::Granted { .. } | Told::Paused => {
                let is_granted = matches!(record.told, Told::Granted { .. });
                self.counts.grants += u64::from(is_granted && record.revision > transfer.seen);
                if let Told::Granted { rate_bps, .. } = record.told {
                    self.granted_bps.insert(id.device, rate_bps);
                }
                transfer.obey(self.now_ns, record);
            }
            Told::Dropped => {
                transfer.seen = transfer.seen.max(record.revision);
                transfer.cancel();
            }
            Told::Ended
                if transfer.course != Course::Live && transfer.acked == transfer.revision =>
            {
                self.transfers.remove(&id);
            }
            Told::Ended => {}
            Told::Refused(reason) => {
                self.transfers.remove(&id);
                self.events.push_back(Event::Refused { id, reason });
            }
            Told::Rate { .. } | Told::Renewed { .. } => {}
        }
    }

    /// Answers a record about a transfer that is not known.
    fn answer_unknown(&mut self, record: &ControllerRecord) {
        if record.ask && self.answers.len() < RECORDS_MAX {
            // It has ended, and the controller has forgotten that, or has not heard of it yet.
            self.answers.push(SourceRecord {
                device: record.device,
                number: record.number,
                revision: u32::MAX,
                seen: record.revision,
                ask: false,
                obeys: true,
                finish: false,
                state: SourceState::Cancelled,
                age_ns: 0,
            });
        }
    }

    /// Writes the next datagram into the buffer; returns whether there was one.
    pub(super) fn write(&mut self) -> bool {
        let now_ns = self.now_ns;
        let Some(link) = &mut self.link else { return false };
        let repeat_ns = link.round_trip.repeat_ns(self.config.lease_ns);
        let mut records: Vec<SourceRecord> = std::mem::take(&mut self.answers);
        let ready = self.transfers.iter_mut().filter(|(_, transfer)| transfer.ready);
        for (id, transfer) in ready.take(RECORDS_MAX - records.len()) {
            records.push(tell(*id, transfer, now_ns, repeat_ns));
        }
        if records.is_empty() {
            // Never together with transfers: a controller that knows no rates refuses all of a datagram.
            self.rates.write(now_ns, repeat_ns, self.config.lease_ns, &mut records);
        }
        if records.is_empty() {
            self.delivery.write(now_ns, &mut records);
        }
        let probe = link.probes(now_ns);
        if records.is_empty() && !probe {
            return false;
        }
        let ids = (self.term, link.source, now_ns);
        if link.codes.seal(ids, &records, &mut self.buffer).is_err() {
            self.link = None;
            self.register();
            return false;
        }
        link.note_sent(now_ns);
        self.counts.sent += 1;
        if records.iter().any(|record| record.ask) {
            self.unanswered_ns.get_or_insert(now_ns);
        }
        true
    }
}

/// Returns the record of a transfer, and sets when it is told again.
fn tell(id: LocalId, transfer: &mut Transfer, now_ns: u64, repeat_ns: u64) -> SourceRecord {
    transfer.ready = false;
    let is_first = transfer.acked < transfer.revision && transfer.repeat.is_none();
    // What ends before this would be repeated says so then.
    let is_asked = is_first && !transfer.ends_before(now_ns.saturating_add(repeat_ns));
    if is_first {
        transfer.repeat = Some(Repeat::new(now_ns, repeat_ns));
        transfer.told_ns = is_asked.then_some(now_ns);
    }
    let state = transfer.state(now_ns);
    SourceRecord {
        device: id.device,
        number: id.number,
        revision: transfer.revision,
        seen: transfer.seen,
        // An answer that asks would be answered, and so for ever.
        ask: std::mem::take(&mut transfer.asks) || is_asked,
        obeys: transfer.obeys(),
        finish: transfer.finish && !matches!(state, SourceState::Done | SourceState::Cancelled),
        state,
        age_ns: now_ns.saturating_sub(transfer.born_ns),
    }
}
