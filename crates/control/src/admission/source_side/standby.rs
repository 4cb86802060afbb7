//! A controller that stands by, as a source knows it: with a key of its own, and probes that show it the clock.
use super::SourceSide;
use super::link::Link;
use crate::admission::wire::{ControllerRecord, Header, Kind, ROOT_BYTES, SourceRecord};

/// What is to be done about a controller that stands by.
#[derive(Debug, PartialEq, Eq)]
pub enum StandbyOutput<'a> {
    /// Send it a datagram.
    Transmit(&'a [u8]),
    /// It leads, in a higher term than the one that is obeyed: see [`Input::Leads`](super::Input::Leads).
    Leads {
        /// The term.
        term: u32,
    },
    /// It does not know this source, or all keys are used: register there again.
    Register,
    /// Nothing more to do until a datagram comes, or this time.
    Timeout(u64),
}

/// A controller with which a source has registered while it stands by.
#[derive(Debug)]
pub struct Standby {
    link: Link,
    now_ns: u64,
    /// The highest term that the source knows.
    term: u32,
    leads: Option<u32>,
    is_unknown: bool,
    buffer: Vec<u8>,
}

impl Standby {
    /// Begins with what both ends know from the session.
    #[must_use]
    pub fn new(now_ns: u64, source: u32, root: &[u8; ROOT_BYTES], round_trip_ns: u64) -> Self {
        let link = Link::new(now_ns, source, root, round_trip_ns);
        Self { link, now_ns, term: 0, leads: None, is_unknown: false, buffer: Vec::new() }
    }

    /// Takes the time, the highest term that the source knows, and a datagram if one has come. Times before the last one
    /// count as the last one.
    pub fn handle(&mut self, now_ns: u64, term: u32, datagram: Option<&[u8]>) {
        self.now_ns = self.now_ns.max(now_ns);
        self.term = self.term.max(term);
        let Some((bytes, header)) =
            datagram.and_then(|bytes| Some((bytes, Header::read(bytes).ok()?)))
        else {
            return;
        };
        if header.kind == Kind::Hint {
            self.is_unknown |= self.link.is_hinted(self.now_ns, &header);
            return;
        }
        let mut records: Vec<ControllerRecord> = Vec::new();
        let is_opened = self.link.codes.open(bytes, &mut records).is_ok();
        if is_opened && header.source == self.link.source && header.term > self.term {
            self.leads = Some(header.term);
        }
    }

    /// Returns what is to be done next; [`StandbyOutput::Timeout`] when there is nothing more.
    pub fn poll(&mut self) -> StandbyOutput<'_> {
        if let Some(term) = self.leads.filter(|term| *term > self.term) {
            return StandbyOutput::Leads { term };
        }
        if std::mem::take(&mut self.is_unknown) {
            return StandbyOutput::Register;
        }
        let now_ns = self.now_ns;
        if !self.link.probes(now_ns) {
            return StandbyOutput::Timeout(self.link.probe_due_ns());
        }
        self.link.note_sent(now_ns);
        let ids = (self.term, self.link.source, now_ns);
        let none: [SourceRecord; 0] = [];
        match self.link.codes.seal(ids, &none, &mut self.buffer) {
            Ok(()) => StandbyOutput::Transmit(&self.buffer),
            Err(_) => StandbyOutput::Register,
        }
    }
}

impl SourceSide {
    pub(super) fn leads(&mut self, standby: Standby) {
        match standby.leads {
            Some(term) if term > self.term => {
                self.going_on = None;
                self.follow(term, standby.link);
            }
            Some(_) | None => self.counts.old_term += 1,
        }
    }
}
