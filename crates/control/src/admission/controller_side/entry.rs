//! A transfer, as both ends know it.
use crate::admission::round_trip::Repeat;
use crate::admission::timers::TimerId;
use crate::admission::wire::Reason;

/// A transfer, among those of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) device: u32,
    pub(super) number: u64,
}

/// What the source was told last, in the controller's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Waiting,
    Granted { rate_bps: u64, from_ns: u64, until_ns: u64 },
    Paused,
    Dropped,
    Refused(Reason),
}

/// A request that the controller is not told yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) left_bytes: u64,
    pub(super) born_ns: u64,
    /// It is not dropped.
    pub(super) finish: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) said: Said,
    /// Counts what was said on the wire.
    pub(super) revision: u32,
    /// The controller's own count at that time.
    pub(super) inner: u32,
    /// The newest state of the source that came.
    pub(super) heard: u32,
    /// The newest of these that the source was told to have come.
    pub(super) told: u32,
    /// The newest revision that the source has seen.
    pub(super) seen: u32,
    pub(super) missed_ns: Option<u64>,
    /// Until when something granted may be in use.
    pub(super) until_ns: u64,
    pub(super) held: Option<Held>,
    /// Is to be sent.
    pub(super) ready: bool,
    /// The source is to answer: what is to be sent is new, or repeated.
    pub(super) asks: bool,
    /// The source asks again until this revision comes: it need not be asked, nor told again unasked.
    pub(super) relies: bool,
    /// It was not sent in this revision yet.
    pub(super) unsent: bool,
    /// When it was sent in this revision, unless it was sent again since: an answer may be to either.
    pub(super) sent_ns: Option<u64>,
    pub(super) repeat: Option<(Repeat, TimerId)>,
}

impl Entry {
    /// Makes an entry for a transfer whose source has seen this revision of this term already: what is
    /// said from now on is newer.
    pub(super) const fn new(seen: u32) -> Self {
        Self {
            said: Said::Waiting,
            revision: seen,
            inner: 0,
            heard: 0,
            told: 0,
            seen,
            missed_ns: None,
            until_ns: 0,
            held: None,
            ready: false,
            asks: false,
            relies: false,
            unsent: false,
            sent_ns: None,
            repeat: None,
        }
    }

    /// Returns whether nothing more will be granted.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.said, Said::Dropped | Said::Refused(_))
    }

    /// Notes which revision the source has seen; returns when that was sent, if it is the newest and was not repeated.
    pub(super) fn note_seen(&mut self, seen: u32) -> Option<u64> {
        if seen <= self.seen || seen > self.revision {
            return None;
        }
        self.seen = seen;
        self.sent_ns.take_if(|_| seen == self.revision)
    }

    /// Returns whether the source has not seen what was said last.
    pub(super) const fn is_unseen(&self) -> bool {
        self.seen < self.revision
    }

    /// Returns whether a new state is repeated until the source has seen it.
    pub(super) const fn is_repeated(&self) -> bool {
        self.is_unseen() && !self.relies
    }

    /// Returns whether the source asks again until it hears what it is granted: nothing was sent yet that says that its
    /// newest state has come.
    pub(super) const fn is_granted_unanswered(&self) -> bool {
        self.heard > self.told && matches!(self.said, Said::Granted { .. })
    }
}
