//! Watching a run: a log of what links did, a fingerprint, a capture.

use crate::{Fate, Frame, LinkId};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Something that happened on a link.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Virtual time.
    pub at: Duration,
    /// Where.
    pub link: LinkId,
    /// What.
    pub kind: EventKind,
    /// With which frame, as it was at that moment.
    pub frame: &'a Frame,
}

/// What can happen to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A node offered it to the link, which will do this with it.
    Offered(Fate),
    /// It reached the far end.
    Arrived,
}

/// Is told everything that happens on links.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);
}

/// A shared observer, so that the caller can look at it after the run.
impl<O: Observer> Observer for Rc<RefCell<O>> {
    fn event(&mut self, event: &Event<'_>) {
        self.borrow_mut().event(event);
    }
}

/// Keeps what happened.
#[derive(Debug, Clone, Default)]
pub struct TraceLog {
    records: Vec<TraceRecord>,
}

/// An event without the bytes of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// Virtual time.
    pub at: Duration,
    /// Where.
    pub link: LinkId,
    /// What.
    pub kind: EventKind,
    /// How long the frame was.
    pub bytes: usize,
}

impl TraceLog {
    /// What happened so far, in order.
    #[must_use]
    pub fn records(&self) -> &[TraceRecord] {
        &self.records
    }
}

impl Observer for TraceLog {
    fn event(&mut self, event: &Event<'_>) {
        self.records.push(TraceRecord {
            at: event.at,
            link: event.link,
            kind: event.kind,
            bytes: event.frame.len(),
        });
    }
}

impl fmt::Display for TraceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            link,
            kind,
            bytes,
        } = self;
        let at_us = at.as_nanos() as f64 / 1000.0;
        write!(f, "{at_us:14.3} us  {link}  {bytes:5} bytes  {kind:?}")
    }
}

/// A number that differs as soon as two runs differ in one event or one byte.
#[derive(Debug, Clone, Default)]
pub struct Fingerprint {
    hasher: crc32fast::Hasher,
}

impl Fingerprint {
    /// The number of everything so far.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.hasher.clone().finalize()
    }
}

impl Observer for Fingerprint {
    fn event(&mut self, event: &Event<'_>) {
        self.hasher.update(&event.at.as_nanos().to_le_bytes());
        self.hasher.update(&event.link.number().to_le_bytes());
        self.hasher.update(&[code(event.kind)]);
        self.hasher.update(event.frame.bytes());
    }
}

fn code(kind: EventKind) -> u8 {
    match kind {
        EventKind::Arrived => 0,
        EventKind::Offered(Fate::Lost) => 1,
        EventKind::Offered(Fate::QueueFull) => 2,
        EventKind::Offered(Fate::TooLong) => 3,
        EventKind::Offered(Fate::Carried {
            held_back,
            doubled,
            corrupted,
            marked,
        }) => {
            let delayed = u8::from(held_back) << 2 | u8::from(doubled) << 1;
            8 | u8::from(marked) << 4 | delayed | u8::from(corrupted)
        }
    }
}
