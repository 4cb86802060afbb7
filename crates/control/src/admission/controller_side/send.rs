//! Datagrams to sources: what is to be said, as it is when they leave.
use super::ControllerSide;
use super::entry::{Entry, Key, Said};
use super::session::Session;
use crate::admission::SourceId;
use crate::admission::wire::{ControllerRecord, RECORDS_MAX, Told};
use std::net::SocketAddr;

impl ControllerSide {
    pub(super) fn make_ready(&mut self, source: SourceId, key: Key) {
        let Some(session) = self.sessions.get_mut(&source) else { return };
        let Some(entry) = session.work.entries.get_mut(&key) else { return };
        if !std::mem::replace(&mut entry.ready, true) {
            session.work.ready.push(key);
        }
        self.enqueue(source);
    }

    pub(super) fn enqueue(&mut self, source: SourceId) {
        let Some(session) = self.sessions.get_mut(&source) else { return };
        if !std::mem::replace(&mut session.queued, true) {
            self.ready.push_back(source);
        }
    }

    /// Writes the next datagram, and returns where it goes.
    pub(super) fn write(&mut self) -> Option<SocketAddr> {
        while let Some(source) = self.ready.pop_front() {
            let (term, now_ns) = (self.term, self.now_ns);
            let Some(session) = self.sessions.get_mut(&source) else { continue };
            session.queued = false;
            let Some(to) = session.address else { continue };
            let records = session.take_records(now_ns);
            if records.is_empty() && !session.is_untold {
                continue;
            }
            let more = !session.work.ready.is_empty() || !session.work.answers.is_empty();
            let ids = (term, source.0, now_ns);
            let sealed = session.codes.seal(ids, &records, &mut self.buffer);
            if more {
                self.enqueue(source);
            }
            // With all keys used nothing can be said: the source hears nothing, and registers again.
            if sealed.is_ok() {
                self.counts.sent += 1;
                return Some(to);
            }
        }
        None
    }
}

impl Session {
    fn take_records(&mut self, now_ns: u64) -> Vec<ControllerRecord> {
        let mut records = Vec::new();
        while records.len() < RECORDS_MAX {
            let Some(record) = self.work.answers.pop() else { break };
            records.push(record);
        }
        while records.len() < RECORDS_MAX && !self.work.ready.is_empty() {
            let key = self.work.ready.swap_remove(0);
            let Self { work, clock, .. } = self;
            let Some(entry) = work.entries.get_mut(&key) else { continue };
            (entry.ready, entry.told) = (false, entry.heard);
            entry.sent_ns = std::mem::take(&mut entry.unsent).then_some(now_ns);
            let ask = std::mem::take(&mut entry.asks) && entry.is_unseen();
            records.push(ControllerRecord { ask, ..record(key, entry, clock) });
        }
        records
    }
}

fn record(key: Key, entry: &Entry, clock: &super::clock::ClockMap) -> ControllerRecord {
    let told = match entry.said {
        Said::Waiting => Told::Waiting,
        Said::Granted { rate_bps, from_ns, until_ns } => {
            let (from_ns, until_ns) = clock.window(from_ns, until_ns);
            Told::Granted { rate_bps, from_ns, until_ns }
        }
        Said::Paused => Told::Paused,
        Said::Dropped => Told::Dropped,
        Said::Refused(reason) => Told::Refused(reason),
    };
    ControllerRecord {
        device: key.device,
        number: key.number,
        revision: entry.revision,
        seen: entry.heard,
        ask: false,
        told,
        missed_ns: entry.missed_ns.map(|at_ns| clock.to_source_ns(at_ns)),
    }
}
