//! The source's end of the wire: asks for transfers, obeys windows, says how far it is.
//!
//! `docs/spec/admission.md` is the protocol. Like the controller it does no I/O: `handle(now_ns, input)`, then
//! `poll()` until it returns a timeout. Times are the source's own clock: windows come in it, and it is
//! compared with no other. It says when a chunk may begin ([`Output::Send`]); sending it, at that rate, is the
//! caller's, who says when it has left ([`Input::Sent`]).
//!
//! When nobody has answered for a lease and no window is left it goes on as [`Fallback`] says, until
//! somebody answers, or as long as a controller with which it registers meanwhile grants nothing ([`GoOn`]).
mod delivery;
mod flight;
mod going_on;
mod idle;
mod join;
mod link;
mod rates;
mod records;
mod standby;
mod step;
mod transfer;

use super::wire::{ROOT_BYTES, Reason, SourceRecord};
pub use going_on::GoOn;
pub use idle::Idle;
use link::Link;
pub use rates::RateView;
pub use standby::{Standby, StandbyOutput};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use transfer::{Chunk, Transfer};

/// A transfer, as the source numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalId {
    /// The device: its place in the list with which the source registered.
    pub device: u32,
    /// Its number, among those of the device; never used again.
    pub number: u64,
}

/// What a source does while no controller answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Sends one transfer after the other at this rate, which nobody has reserved.
    Safe {
        /// The rate.
        rate_bps: u64,
    },
    /// Sends nothing.
    Stop,
    /// Sends one chunk after the other, each once there is room for it on its way, with the rate [`FREE_BPS`].
    Free,
}

/// The rate of what goes without one.
pub const FREE_BPS: u64 = 1 << 50;

impl Fallback {
    const fn rate_bps(self) -> Option<u64> {
        match self {
            Self::Safe { rate_bps } => Some(rate_bps),
            Self::Stop => None,
            Self::Free => Some(FREE_BPS),
        }
    }
}

/// What a source is told at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The longest window; as the controller has it.
    pub lease_ns: u64,
    /// It stops at borders of chunks of this size; as the controller has it.
    pub chunk_bytes: u64,
    /// What it does while nobody answers.
    pub fallback: Fallback,
}

impl Config {
    /// Returns a lease of 200 ms and chunks of 1 MiB.
    #[must_use]
    pub const fn new(fallback: Fallback) -> Self {
        Self { lease_ns: 200_000_000, chunk_bytes: 1 << 20, fallback }
    }
}

/// By which right a chunk is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// A window of its transfer.
    Window,
    /// The rate of its periodic device.
    Rate,
    /// None: no controller answers ([`Fallback`]), or one that grants nothing yet ([`GoOn`]).
    Fallback,
}

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// The source has registered with a controller, in a session.
    Registered {
        /// The number that the controller gave it.
        source: u32,
        /// The controller's term. A lower one than before is not obeyed.
        term: u32,
        /// What both ends exported from the session.
        root: [u8; ROOT_BYTES],
        /// How long a message and its answer take, as far as is known.
        round_trip_ns: u64,
        /// How it goes on if it sends at a safe rate now; `None`: not before it is granted something.
        go_on: Option<GoOn>,
    },
    /// A controller that stood by leads now ([`StandbyOutput::Leads`]): it is obeyed, if its term is the highest.
    Leads(Box<Standby>),
    /// A datagram.
    Datagram(&'a [u8]),
    /// A device wants to send something.
    Ask {
        /// The transfer; known ones are not asked for again.
        id: LocalId,
        /// Its size; at least 1.
        bytes: u64,
        /// So much of it is not there yet: [`Input::Add`] says when it is.
        ahead_bytes: u64,
        /// How long ago it was generated.
        age_ns: u64,
        /// While no controller answers, lower ones go first.
        class: u8,
    },
    /// A device wants to send what is left of a frame of which a part was sent, under another transfer that was
    /// dropped: it is not dropped, however late.
    Finish {
        /// The transfer; known ones are not asked for again.
        id: LocalId,
        /// What is left; at least 1.
        bytes: u64,
        /// How long ago it was generated.
        age_ns: u64,
        /// While no controller answers, lower ones go first.
        class: u8,
    },
    /// More of a transfer that was asked for ahead is there, and can be sent.
    Add {
        /// The transfer.
        id: LocalId,
        /// How much more: also beyond what was asked for.
        bytes: u64,
        /// That is all: what was asked for beyond it is given back.
        last: bool,
    },
    /// Something else of the device goes with a transfer that waits, which [`SourceSide::may_join`] allows: one request
    /// and one window for both.
    Join {
        /// The transfer.
        id: LocalId,
        /// How much more.
        bytes: u64,
    },
    /// A chunk of [`Output::Send`] has left: the oldest of that transfer.
    Sent {
        /// The transfer.
        id: LocalId,
    },
    /// A device sends this much each period, and wants a rate for it, so that its transfers need not ask. While it has
    /// one, those go at it that do not ask ahead, as long as no more waits than two periods carry; others ask.
    Periodic {
        /// The device.
        device: u32,
        /// Bytes in each period; 0: it wants no rate any more.
        bytes: u64,
        /// The period.
        period_ns: u64,
    },
    /// What became of all that was sent since the start, as its provider counts: told every
    /// [`delivery_pause_ns`](SourceSide::delivery_pause_ns) while something goes, or not at all.
    Delivered {
        /// What has arrived.
        acknowledged_bytes: u64,
        /// What was lost and sent again.
        resent_bytes: u64,
    },
    /// A transfer is not wanted any more; the chunks that have begun go on.
    Cancel {
        /// The transfer.
        id: LocalId,
    },
    /// A transfer is not wanted any more, and the chunks that have begun are lost with their queue pair.
    Abandon {
        /// The transfer.
        id: LocalId,
    },
    /// The time of the last [`Output::Timeout`] has come.
    Timeout,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Send a datagram to the controller.
    Transmit(&'a [u8]),
    /// Send a chunk, now, at this rate.
    Send {
        /// The transfer.
        id: LocalId,
        /// Bytes of the chunk.
        bytes: u64,
        /// How fast.
        rate_bps: u64,
        /// When it has left at this rate, behind those before it: until then it uses what was granted. In the source's
        /// own clock.
        leaves_ns: u64,
        /// By which right.
        leave: Leave,
    },
    /// A transfer cannot make its deadline.
    Missed {
        /// The transfer.
        id: LocalId,
        /// When it will be there, about.
        estimate_ns: u64,
        /// It will not be sent: it is gone.
        dropped: bool,
    },
    /// The controller refuses a transfer: it is gone.
    Refused {
        /// The transfer.
        id: LocalId,
        /// Why.
        reason: Reason,
    },
    /// The controller does not know this source, or all keys are used: register again.
    Register,
    /// Nothing more to do until an input comes, or this time: then handle [`Input::Timeout`].
    Timeout(Option<u64>),
}

/// What was refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were opened.
    pub opened: u64,
    /// Datagrams that were not: no datagrams, forged, replayed.
    pub refused: u64,
    /// Of a term that is not obeyed any more.
    pub old_term: u64,
    /// Hints that were for this source, of now.
    pub hints: u64,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Windows that were granted, those that prolong another one too.
    pub grants: u64,
}

#[derive(Debug)]
enum Event {
    Send { id: LocalId, chunk: Chunk, leave: Leave },
    Missed { id: LocalId, estimate_ns: u64, dropped: bool },
    Refused { id: LocalId, reason: Reason },
    Register,
}

type Transfers = BTreeMap<LocalId, Transfer>;

/// The source's end. See the [module](self).
#[derive(Debug)]
pub struct SourceSide {
    config: Config,
    now_ns: u64,
    link: Option<Link>,
    /// The highest term that a controller had.
    term: u32,
    transfers: Transfers,
    rates: rates::Rates,
    /// By device: the rate of its last window.
    granted_bps: BTreeMap<u32, u64>,
    delivery: delivery::Delivery,
    ack_delay: flight::AckDelay,
    /// Since when nobody has answered.
    unanswered_ns: Option<u64>,
    /// The line is busy with a chunk of the fallback until then.
    fallback_ns: u64,
    /// What it may send without a grant although somebody answers.
    going_on: Option<GoOn>,
    /// Answers about transfers that are not known any more.
    answers: Vec<SourceRecord>,
    events: VecDeque<Event>,
    buffer: Vec<u8>,
    /// When [`Output::Register`] was said last.
    registering_ns: Option<u64>,
    counts: Counts,
}

impl SourceSide {
    /// Makes the end of a source that has not registered yet.
    #[must_use]
    pub fn new(now_ns: u64, config: Config) -> Self {
        Self {
            config,
            now_ns,
            link: None,
            term: 0,
            transfers: BTreeMap::new(),
            rates: rates::Rates::default(),
            granted_bps: BTreeMap::new(),
            delivery: delivery::Delivery::default(),
            ack_delay: flight::AckDelay::new(),
            unanswered_ns: None,
            fallback_ns: 0,
            going_on: None,
            answers: Vec::new(),
            events: VecDeque::new(),
            buffer: Vec::new(),
            registering_ns: None,
            counts: Counts::default(),
        }
    }

    /// Takes an input. Times before the last one count as the last one.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>) {
        self.now_ns = self.now_ns.max(now_ns);
        match input {
            Input::Registered { source, term, root, round_trip_ns, go_on } => {
                self.registered((source, term), &root, round_trip_ns, go_on);
            }
            Input::Leads(standby) => self.leads(*standby),
            Input::Datagram(bytes) => self.datagram(bytes),
            Input::Ask { id, bytes, ahead_bytes, age_ns, class } => {
                let transfer = Transfer::new(bytes.max(1), self.born_ns(age_ns), class);
                let transfer = transfer.ahead(ahead_bytes);
                if let Entry::Vacant(place) = self.transfers.entry(id) {
                    place.insert(transfer);
                    self.try_ride(id);
                }
            }
            Input::Finish { id, bytes, age_ns, class } => {
                let transfer = Transfer::new(bytes.max(1), self.born_ns(age_ns), class);
                self.transfers.entry(id).or_insert_with(|| transfer.finish());
            }
            Input::Add { id, bytes, last } => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.add(bytes, last);
                }
            }
            Input::Join { id, bytes } => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.join(bytes);
                }
            }
            Input::Sent { id } => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    if let Some(delay_ns) = transfer.sent(self.now_ns) {
                        self.ack_delay.note(self.now_ns, delay_ns);
                    }
                    self.forget_ridden(id);
                }
            }
            Input::Periodic { device, bytes, period_ns } => {
                self.want_rate(device, bytes, period_ns);
            }
            Input::Delivered { acknowledged_bytes, resent_bytes } => {
                self.delivered(acknowledged_bytes, resent_bytes);
            }
            Input::Cancel { id } => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.cancel();
                    self.forget_ridden(id);
                }
            }
            Input::Abandon { id } => {
                if let Some(transfer) = self.transfers.get_mut(&id) {
                    transfer.cancel();
                    transfer.lose_chunks();
                    self.forget_ridden(id);
                }
            }
            Input::Timeout => {}
        }
        self.step();
    }

    /// Returns what is to be done next; [`Output::Timeout`] when there is nothing more.
    pub fn poll(&mut self) -> Output<'_> {
        match self.events.pop_front() {
            Some(Event::Send { id, chunk, leave }) => {
                let Chunk { bytes, rate_bps, leaves_ns, .. } = chunk;
                return Output::Send { id, bytes, rate_bps, leaves_ns, leave };
            }
            Some(Event::Missed { id, estimate_ns, dropped }) => {
                return Output::Missed { id, estimate_ns, dropped };
            }
            Some(Event::Refused { id, reason }) => return Output::Refused { id, reason },
            Some(Event::Register) => return Output::Register,
            None => {}
        }
        if self.write() {
            return Output::Transmit(&self.buffer);
        }
        Output::Timeout(self.next_ns())
    }

    /// Changes what a source is told at its start: by the controller with which it registers, which has the
    /// lease and the size of chunks.
    pub const fn configure(&mut self, config: Config) {
        self.config = config;
    }

    /// Returns when nothing was answered any more that should be, if so.
    #[must_use]
    pub const fn unanswered_ns(&self) -> Option<u64> {
        self.unanswered_ns
    }

    /// Returns what was opened and refused.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns how many transfers are not over yet, or whose end the controller has not confirmed.
    #[must_use]
    pub fn transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Returns whether it does as [`Fallback`] says.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let lease_ns = self.config.lease_ns;
        let unanswered = |since_ns: u64| self.now_ns.saturating_sub(since_ns) >= lease_ns;
        self.unanswered_ns.is_some_and(unanswered)
            && !self.transfers.values().any(|transfer| transfer.has_window(self.now_ns))
            && !self.rates.any_in_force(self.now_ns)
    }

    const fn born_ns(&self, age_ns: u64) -> u64 {
        self.now_ns.saturating_sub(age_ns)
    }
}
