//! The controller's end of the wire: sessions with sources around a [`Controller`].
//!
//! It opens datagrams, keeps for each source its keys and how its clock runs, translates windows into that
//! clock, and repeats what a source has not seen. `docs/spec/admission.md` is the protocol. Like the
//! controller it does no I/O: `handle(now_ns, input)`, then `poll()` until it returns a timeout.
//!
//! Times of the [`Controller`] are times at which data arrives here, or at a bottleneck before: what a
//! source sends by its clock as it is told arrives within its window, if its packets are not held up by more
//! than the guard of its links.
mod clock;
mod devices;
mod entry;
mod events;
mod rates;
mod records;
mod send;
mod session;
mod standby;
mod view;
mod work;

use super::round_trip::Repeat;
use super::timers::{Ranked, Timers};
use super::wire::{Header, Kind, OpenError, ROOT_BYTES, SourceRecord, hint};
use super::{
    ClassConfig, Config, ConfigError, Controller, DeviceId, DeviceSpec, LinkId, Refusal, Rules,
    SourceId, TransferId,
};
use entry::Key;
use session::Session;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
pub use view::{ClassView, RateView, SourceView};

const SECOND_NS: u64 = 1_000_000_000;
/// How late a source may begin and still send all in its window.
const WAKE_NS: u64 = 200_000;
/// Hints in a second.
const HINTS_MAX: u64 = 1000;

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A source has registered in a session, or again: then its windows stand, and earlier keys do not.
    Register {
        /// Its number: of this process alone.
        source: SourceId,
        /// What both ends exported from the session.
        root: [u8; ROOT_BYTES],
        /// How long a message to the source and its answer take, as far as is known.
        round_trip_ns: u64,
        /// Its devices. Source and delays of a spec are set here.
        devices: Vec<DeviceSpec>,
    },
    /// A source says goodbye: what it was granted is free at once.
    Leave {
        /// The source.
        source: SourceId,
    },
    /// A datagram.
    Datagram {
        /// Where it is from.
        from: SocketAddr,
        /// The datagram.
        bytes: &'a [u8],
    },
    /// A link carries more or less than before.
    Capacity {
        /// The link.
        link: LinkId,
        /// What it carries.
        capacity_bps: u64,
    },
    /// Classes are served otherwise ([`Input::Classes`](super::Input::Classes)).
    Classes(
        /// The classes: as many as before.
        Vec<ClassConfig>,
    ),
    /// Another policy holds ([`Input::Rules`](super::Input::Rules)).
    Rules(
        /// The switches.
        Rules,
    ),
    /// One that stands by leads from now on, and tells its sources.
    Lead {
        /// Its term, which is not 0.
        term: u32,
        /// How long what the controller before granted may still be used, as that one said when it gave up
        /// ([`ControllerSide::left_ns`]); `None` where it did not.
        left_ns: Option<u64>,
    },
    /// Another one is to lead: it grants nothing from now on, and takes back what it can. When
    /// [`ControllerSide::hand_over_ns`] has come, [`ControllerSide::left_ns`] is to be told.
    GiveUp,
    /// The time of the last [`Output::Timeout`] has come.
    Timeout,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Send a datagram.
    Transmit {
        /// Where to.
        to: SocketAddr,
        /// The datagram, until the next call.
        bytes: &'a [u8],
    },
    /// A device of a source is not taken.
    Refused {
        /// The source.
        source: SourceId,
        /// Its device.
        device: u32,
        /// Why.
        reason: Refusal,
    },
    /// A source has been silent for 30 s: it is forgotten, and has to register again.
    Forgotten {
        /// The source.
        source: SourceId,
    },
    /// A source knows a controller of a higher term: this one leads no more.
    Superseded {
        /// The higher term.
        term: u32,
    },
    /// Losses have lowered what is granted of a link, or it has again what it is said to carry.
    Working {
        /// The link.
        link: LinkId,
        /// What it is said to carry: bits a second.
        stated_bps: u64,
        /// What is granted of it, at most: bits a second.
        working_bps: u64,
    },
    /// Nothing more to do until an input comes, or this time: then handle [`Input::Timeout`].
    Timeout(Option<u64>),
}

/// What was refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were opened.
    pub opened: u64,
    /// Datagrams that are none of this version, or hold records that are none.
    pub malformed: u64,
    /// Of a source that is not known.
    pub unknown: u64,
    /// Without the right code, or with a key that is not in use.
    pub forged: u64,
    /// Opened before, or too old.
    pub replayed: u64,
    /// Hints that were sent.
    pub hints: u64,
    /// Datagrams that were sent, without hints.
    pub sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Something is to be repeated.
    Repeat(SourceId, Key),
    /// A source may be silent.
    Silence(SourceId),
    /// Windows of an earlier controller are over.
    Quiet,
    /// Some sources may not know yet who leads.
    Announce,
}

impl Ranked for Timer {
    fn rank(&self) -> u32 {
        match self {
            Self::Repeat(source, _) => source.0.min(u32::MAX - 3),
            Self::Announce => u32::MAX - 2,
            Self::Silence(_) => u32::MAX - 1,
            Self::Quiet => u32::MAX,
        }
    }
}

#[derive(Debug)]
enum Event {
    Hint(SocketAddr, [u8; super::wire::HEADER_BYTES]),
    Refused(SourceId, u32, Refusal),
    Forgotten(SourceId),
    Superseded(u32),
    Working(LinkId, u64, u64),
}

/// The controller's end. See the [module](self).
#[derive(Debug)]
pub struct ControllerSide {
    controller: Controller,
    term: u32,
    now_ns: u64,
    lease_ns: u64,
    /// What a source may have waiting or running, of all its devices.
    transfers_max: usize,
    /// By link: how much delays differ.
    guards_ns: Vec<u64>,
    paths: Vec<Vec<LinkId>>,
    /// Boxed: the nodes of the tree stay small.
    sessions: BTreeMap<SourceId, Box<Session>>,
    /// By device of the controller: whose it is, and its place there.
    owners: Vec<Option<(SourceId, u32)>>,
    unused: Vec<u32>,
    timers: Timers<Timer>,
    controller_due_ns: Option<u64>,
    /// Until then an earlier controller's windows may be in use.
    quiet_until_ns: u64,
    /// How long that is where nothing is known of them.
    quiet_ns: u64,
    /// When sources are told again who leads.
    announcing: Option<Repeat>,
    /// Sources that are to be sent something.
    ready: VecDeque<SourceId>,
    events: VecDeque<Event>,
    records: Vec<SourceRecord>,
    buffer: Vec<u8>,
    hints: (u64, u64),
    counts: Counts,
    superseded: bool,
    /// By class: what has ended.
    ended: Vec<view::Ended>,
}

impl ControllerSide {
    /// Makes the end of a controller that leads in this term, or stands by in term 0 until [`Input::Lead`]. The guards of
    /// `config` are how much delays differ; 50 µs at least. With [`Config::recovering`] nothing is granted until windows
    /// of an earlier controller are over.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(now_ns: u64, term: u32, config: Config) -> Result<Self, ConfigError> {
        let guards_ns: Vec<u64> =
            config.links.iter().map(|link| link.guard_ns.max(session::SPREAD_NS_MIN)).collect();
        let mut inner = config;
        for (link, guard_ns) in inner.links.iter_mut().zip(&guards_ns) {
            // A window loses two guards where it is told; its grant may be held up for one, and the
            // source may wake up late.
            link.guard_ns = guard_ns.saturating_mul(3).saturating_add(WAKE_NS);
        }
        let longest_ns = inner.links.iter().map(|link| link.guard_ns).max().unwrap_or(0);
        // A window begins a round trip from when it was granted, at the latest.
        let quiet_ns =
            inner.lease_ns + 2 * longest_ns + inner.ahead_ns + session::ROUND_TRIP_NS_MAX;
        let recovering = inner.recovering;
        let (lease_ns, paths) = (inner.lease_ns, inner.paths.clone());
        let ended = vec![view::Ended::default(); inner.classes.len()];
        let transfers_max = (inner.transfers_max as usize).saturating_mul(4);
        let mut side = Self {
            controller: Controller::new(now_ns, inner)?,
            term,
            now_ns,
            lease_ns,
            transfers_max,
            guards_ns,
            paths,
            sessions: BTreeMap::new(),
            owners: Vec::new(),
            unused: Vec::new(),
            timers: Timers::new(),
            controller_due_ns: None,
            quiet_until_ns: now_ns,
            quiet_ns,
            announcing: None,
            ready: VecDeque::new(),
            events: VecDeque::new(),
            records: Vec::new(),
            buffer: Vec::new(),
            hints: (0, 0),
            counts: Counts::default(),
            superseded: false,
            ended,
        };
        if recovering && term > 0 {
            side.be_quiet(quiet_ns);
        }
        side.drain();
        Ok(side)
    }

    /// Takes an input. Times before the last one count as the last one.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>) {
        self.now_ns = self.now_ns.max(now_ns);
        self.fire();
        match input {
            Input::Register { source, root, round_trip_ns, devices } => {
                self.register(source, &root, round_trip_ns, devices);
            }
            Input::Leave { source } => self.leave(source),
            Input::Datagram { from, bytes } => self.datagram(from, bytes),
            Input::Capacity { link, capacity_bps } => {
                self.control(super::Input::Capacity { link, capacity_bps });
            }
            Input::Classes(classes) => self.control(super::Input::Classes(classes)),
            Input::Rules(rules) => self.control(super::Input::Rules(rules)),
            Input::Lead { term, left_ns } => self.lead(term, left_ns),
            Input::GiveUp => self.control(super::Input::GiveUp),
            Input::Timeout => {}
        }
    }

    /// Returns what is to be done next; [`Output::Timeout`] when there is nothing more.
    pub fn poll(&mut self) -> Output<'_> {
        match self.events.pop_front() {
            Some(Event::Hint(to, bytes)) => {
                self.buffer.clear();
                self.buffer.extend_from_slice(&bytes);
                return Output::Transmit { to, bytes: &self.buffer };
            }
            Some(Event::Refused(source, device, reason)) => {
                return Output::Refused { source, device, reason };
            }
            Some(Event::Forgotten(source)) => return Output::Forgotten { source },
            Some(Event::Superseded(term)) => return Output::Superseded { term },
            Some(Event::Working(link, stated_bps, working_bps)) => {
                return Output::Working { link, stated_bps, working_bps };
            }
            None => {}
        }
        if let Some(to) = self.write() {
            return Output::Transmit { to, bytes: &self.buffer };
        }
        let patience_ns = self.controller.patience_ns();
        let control_ns = self.controller_due_ns.map(|due_ns| due_ns.saturating_add(patience_ns));
        let due = [control_ns, self.timers.next_ns()];
        Output::Timeout(due.into_iter().flatten().min())
    }

    /// Returns what was opened and refused.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns how many sources are registered.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the controller, to look at.
    #[must_use]
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    fn datagram(&mut self, from: SocketAddr, bytes: &[u8]) {
        let header = match Header::read(bytes) {
            Ok(header) if header.kind == Kind::Source => header,
            Ok(_) | Err(_) => {
                self.counts.malformed += 1;
                return;
            }
        };
        let source = SourceId(header.source);
        let Some(session) = self.sessions.get_mut(&source) else {
            self.counts.unknown += 1;
            return self.hint(from, &header);
        };
        let mut records = std::mem::take(&mut self.records);
        match session.codes.open(bytes, &mut records) {
            Ok(_) => {
                self.counts.opened += 1;
                self.hear(source, from, &header);
                if !self.stands_by() {
                    records.iter().for_each(|record| self.record(source, &header, record));
                }
                self.release(source);
                if records.is_empty() {
                    self.rest(source);
                }
            }
            Err(OpenError::Forged | OpenError::Epoch { .. }) => self.counts.forged += 1,
            Err(OpenError::Replayed { .. }) => self.counts.replayed += 1,
            Err(OpenError::Header(_) | OpenError::WrongKind { .. } | OpenError::Record { .. }) => {
                self.counts.malformed += 1;
            }
        }
        self.records = records;
    }

    /// Lets a source that wants nothing take little memory: it sends a probe now and then.
    fn rest(&mut self, source: SourceId) {
        if let Some(session) = self.sessions.get_mut(&source) {
            session.rest();
        }
    }

    fn hint(&mut self, to: SocketAddr, header: &Header) {
        let second = self.now_ns / SECOND_NS;
        if self.hints.0 != second {
            self.hints = (second, 0);
        }
        if self.hints.1 < HINTS_MAX {
            self.hints.1 += 1;
            self.counts.hints += 1;
            self.events.push_back(Event::Hint(to, hint(header, self.term)));
        }
    }

    /// Lets the controller handle an input, and notes what it says.
    fn control(&mut self, input: super::Input) {
        self.controller.handle(self.now_ns, input);
        self.drain();
    }

    /// Returns whether windows of an earlier controller may be in use, so that nothing is granted.
    const fn is_quiet(&self) -> bool {
        self.now_ns < self.quiet_until_ns
    }

    fn owner(&self, device: DeviceId) -> Option<(SourceId, u32)> {
        *self.owners.get(device.0 as usize)?
    }

    fn key_of(&self, transfer: TransferId) -> Option<(SourceId, Key)> {
        let (source, device) = self.owner(transfer.device)?;
        Some((source, Key { device, number: transfer.number }))
    }
}
