//! One host of DRUM as a state machine: the steps of the solver, and messages to the hosts that it
//! shares edges with. No input, output or clock of its own.
//!
//! Neighbours keep step without a common clock: a host sends its next offers a round time after the
//! last, once all answers are there; a receiver answers once all offers are there. Hosts out of step
//! are so by less than a round time. So a receiver waits for a round time after the first offers, and
//! one and a half after its last answers; a sender for as long as such answers take. What comes later counts as lost. Rounds have
//! numbers, or hosts that missed each other once would wait for one another in turn from then on: who is behind is told
//! what the others were, and goes on with their number.
//!
//! Capacities hold at every moment, whatever messages do: a sender uses no more than its receivers
//! granted, and a receiver grants only what nobody can still be using (`ledger.rs`).
mod application;
mod carried;
mod certificate;
mod config;
mod follow;
mod guard;
mod ledger;
mod receiving;
mod sending;
mod sources;
mod targets;
mod wire;

use super::fill::Price;
use super::step::RENEWALS;
use application::{Sending, Target};
use follow::Follow;
use guard::{Guard, Verdict};
use receiving::{Incoming, Receiving};
use sources::{Left, Source};
use std::collections::{BTreeMap, VecDeque};

pub use carried::{Carried, Numbers};
pub use config::{Application, Destination, HostConfig, HostError};
pub use wire::{Answered, Header, Message, Offer, Round, WireError};

/// What happens to a host.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// Time passed; due at [`Output::Timeout`].
    Tick,
    /// An application came, or another one has its number now.
    Join(Application),
    /// An application left.
    Leave(u32),
    /// Capacities are others now, in Mops. What was granted of the old ones holds until those who use
    /// it have heard of less.
    Capacities {
        /// What the host can send.
        send: f64,
        /// What it can complete.
        completion: f64,
    },
    /// Another host is gone, and nothing that it sent can still arrive.
    Gone(u32),
    /// Bytes came from another host.
    Packet {
        /// The host, as whoever carries the bytes has proven it.
        from: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Data came from an application of another host, and carried numbers.
    Carried {
        /// The host, as whoever carries the data has proven it, in the life that it has messages of.
        from: u32,
        /// The applications: the one there, and the one here.
        ends: (u32, u32),
        /// [`Carried::stamp`].
        stamp: u16,
        /// The numbers.
        numbers: Numbers,
    },
}

/// What a host wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// [`Host::rates`] changed: put them in force now, before anything that follows.
    Rates,
    /// Send these bytes to a host.
    Send {
        /// The host.
        to: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Nothing else until something happens, or until this time, in ns.
    Timeout(u64),
}

/// What a host has counted in this life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Rounds: offers with entries.
    pub rounds: u64,
    /// Offers and answers that did not come in time.
    pub lost: u64,
    /// Packets refused: no message, or of an earlier life.
    pub refused: u64,
    /// Times that this host fell back to its own shares.
    pub fell_back: u64,
    /// Offers and prices that data carried, and no message had said.
    pub carried: u64,
}

/// One host; `handle` it, then `poll` it until [`Output::Timeout`].
///
/// ```
/// use catchment_control::drum::{Application, Destination, Host, HostConfig, Input, Output};
///
/// let config = HostConfig {
///     host: 0,
///     incarnation: 1,
///     alpha: 1.0,
///     beta: 0.01,
///     send_capacity: 10.0,
///     completion_capacity: 8.0,
///     round_ns: 1_000_000,
///     lease_ns: 2_000_000_000,
///     restarted: false,
/// };
/// let mut host = Host::new(config, 0)?;
/// let own = Destination { host: 0, application: 0, completions: 1.0 };
/// for (application, weight) in [(0, 1.0), (1, 3.0)] {
///     let destinations = vec![Destination { application, ..own }];
///     let application = Application { application, weight, limit: None, destinations };
///     host.handle(0, Input::Join(application))?;
/// }
/// let mut now = 0;
/// while now < 200_000_000 {
///     match host.poll(now) {
///         Output::Timeout(at) => {
///             now = at;
///             host.handle(now, Input::Tick)?;
///         }
///         Output::Rates | Output::Send { .. } => {}
///     }
/// }
/// // Completions bind: 8, shared 1 to 3.
/// assert!((host.rates()[1].1 - 6.0).abs() < 0.01);
/// # Ok::<(), catchment_control::drum::HostError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    config: HostConfig,
    outputs: VecDeque<Output>,
    counts: HostCounts,
    change: u32,
    /// Whether this host's part of the problem is another, and rates do not answer it yet.
    changed: bool,
    /// Sequence of the newest message.
    sequence: u64,
    /// By number.
    applications: Vec<Sending>,
    targets: BTreeMap<u32, Target>,
    sending: Price,
    /// Time and sequence of the last offers.
    sent: Option<(u64, u64)>,
    /// Their round, and the newest that was answered.
    offering: Round,
    newest: Round,
    /// Whether the next offers tell of a change, and the sequence of the last that did.
    tells: bool,
    told: u64,
    /// How rates follow a change.
    follow: Follow,
    renewals: usize,
    relative_sending: f64,
    sources: BTreeMap<u32, Source>,
    left: BTreeMap<u32, Left>,
    /// By host and application there, then application here.
    incoming: BTreeMap<(u32, u32, u32), Incoming>,
    receiving: BTreeMap<u32, Receiving>,
    completing: Price,
    completing_alone: f64,
    rise: f64,
    /// The round of the next answers.
    collecting: Round,
    answer_at: Option<u64>,
    /// When others were answered last.
    answered: Option<u64>,
    /// How prices follow a change.
    prices: Follow,
    renewals_receiving: usize,
    relative_receiving: f64,
    /// Whether grants are what they should be, and confirmed.
    settled: bool,
    quiet_until: u64,
    /// Rounds in a row that hardly moved anything.
    calm: u32,
    /// Whether somebody else's change has to be answered.
    awake: bool,
    /// Rounds before the last change that this host made or heard of.
    rounds_before: u64,
    guard: Guard,
    announced: Vec<(u32, f64)>,
}

/// Rounds in a row with residuals below [`CALM`] after which a host is still.
const CALM_ROUNDS: u32 = 3;
const CALM: f64 = 1e-4;
/// Round times that a receiver waits after its last answers, and a sender after its last offers: those
/// that the receiver waits, and a little.
const QUARTERS_TO_ANSWER: u64 = 6;
const QUARTERS_TO_OFFER: u64 = 7;
/// A neighbour that missed more rounds than this in a row is not waited for.
const MOST_MISSES: u32 = 2;

impl Host {
    /// Makes a host without applications.
    ///
    /// # Errors
    /// [`HostError`] for a value that is not possible.
    pub fn new(config: HostConfig, now_ns: u64) -> Result<Self, HostError> {
        config.check()?;
        let quiet = if config.restarted { config.lease_ns + 2 * config.round_ns } else { 0 };
        Ok(Self {
            quiet_until: now_ns + quiet,
            config,
            outputs: VecDeque::new(),
            counts: HostCounts::default(),
            change: 0,
            changed: false,
            sequence: 0,
            applications: Vec::new(),
            targets: BTreeMap::new(),
            sending: Price::default(),
            sent: None,
            offering: Round::default(),
            newest: Round::default(),
            tells: false,
            told: 0,
            follow: Follow::default(),
            renewals: RENEWALS,
            relative_sending: f64::INFINITY,
            sources: BTreeMap::new(),
            left: BTreeMap::new(),
            incoming: BTreeMap::new(),
            receiving: BTreeMap::new(),
            completing: Price::default(),
            completing_alone: 0.0,
            rise: 0.0,
            collecting: Round::default().next(),
            answer_at: None,
            answered: None,
            prices: Follow::default(),
            renewals_receiving: RENEWALS,
            relative_receiving: 0.0,
            settled: true,
            calm: 0,
            awake: true,
            rounds_before: 0,
            guard: Guard::default(),
            announced: Vec::new(),
        })
    }

    /// Takes what happened at a time, which never goes back. Applications that come and leave are taken together: what
    /// that leads to begins with the next [`Input::Tick`].
    ///
    /// # Errors
    /// [`HostError`] for an application or capacity that is not possible, which changes nothing. Packets
    /// never fail: what is wrong with them is counted.
    pub fn handle(&mut self, now_ns: u64, input: Input<'_>) -> Result<(), HostError> {
        match input {
            Input::Tick => self.proceed(now_ns),
            Input::Join(application) => self.join(now_ns, application)?,
            Input::Leave(application) => self.leave(application),
            Input::Capacities { send, completion } => {
                self.set_capacities(now_ns, send, completion)?;
                self.answer_changes();
            }
            Input::Gone(host) => {
                self.drop_host(now_ns, host);
                self.answer_changes();
            }
            Input::Packet { from, bytes } => match Message::decode(bytes) {
                Ok(message) if from != self.config.host => {
                    self.answer_changes();
                    self.take(now_ns, from, message);
                    self.proceed(now_ns);
                }
                Ok(_) | Err(_) => self.counts.refused += 1,
            },
            Input::Carried { from, ends, stamp, numbers } => {
                match Carried::decode(stamp, numbers) {
                    Ok(carried) if from != self.config.host => {
                        self.take_carried(from, ends, carried);
                    }
                    Ok(_) | Err(_) => self.counts.refused += 1,
                }
            }
        }
        self.announce();
        Ok(())
    }

    /// Returns the next thing to do; the last is a [`Output::Timeout`].
    pub fn poll(&mut self, now_ns: u64) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| Output::Timeout(self.due().max(now_ns)))
    }

    /// The rates in force by application, in Mops.
    #[must_use]
    pub fn rates(&self) -> &[(u32, f64)] {
        &self.announced
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Rounds since the last change that this host made or heard of.
    #[must_use]
    pub fn rounds_since_change(&self) -> u64 {
        self.counts.rounds - self.rounds_before
    }

    /// Whether nothing changes at this host any more.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.calm >= CALM_ROUNDS
    }

    /// By how much the last round moved rates or prices, beside what they are; 0 before the first.
    #[must_use]
    pub fn residual(&self) -> f64 {
        let both = self.relative_sending.max(self.relative_receiving);
        if both.is_finite() { both } else { 0.0 }
    }

    /// Whether this host has fallen back to its own shares.
    #[must_use]
    pub fn has_fallen_back(&self) -> bool {
        self.guard.fallen
    }

    fn set_capacities(&mut self, now: u64, send: f64, completion: f64) -> Result<(), HostError> {
        let falls = completion < self.config.completion_capacity;
        let config =
            HostConfig { send_capacity: send, completion_capacity: completion, ..self.config };
        config.check()?;
        self.config = config;
        if falls && !self.incoming.is_empty() {
            // Nobody's lease goes on with what was granted before.
            self.answer_at = Some(now);
        }
        self.begin_receiving();
        self.changed();
        Ok(())
    }

    fn drop_host(&mut self, now: u64, host: u32) {
        self.forget_source(host);
        self.lose_target(now, host);
    }

    /// Returns the number of a message that is made now.
    fn next_sequence(&mut self, now: u64) -> u64 {
        self.sequence = now.max(self.sequence + 1);
        self.sequence
    }

    fn take(&mut self, now: u64, from: u32, message: Message) {
        let ours = message.header().heard == self.config.incarnation;
        match message {
            Message::Offers(header, offers) => self.take_offers(now, from, header, &offers),
            Message::Answers(header, answers) if ours => {
                self.take_answers(now, from, header, &answers);
            }
            // To an earlier life of this host.
            Message::Answers(..) => self.counts.refused += 1,
        }
    }

    /// Does everything that is due.
    fn proceed(&mut self, now: u64) {
        self.expire_sources(now);
        self.expire_targets(now);
        self.answer_changes();
        if self.answer_is_due(now) {
            self.answer(now);
        }
        if self.next_send().is_some_and(|due| due <= now) {
            self.send(now);
            if self.answer_is_due(now) {
                self.answer(now);
            }
        }
    }

    fn due(&self) -> u64 {
        let at_once = self.changed.then_some(0);
        let times = [at_once, self.answer_at, self.next_send(), self.next_expiry()];
        times.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    fn count_losses(&mut self, expected: usize, lost: usize) {
        self.counts.lost += lost as u64;
        match self.guard.count(expected, lost, self.residual()) {
            Verdict::Stay => {}
            Verdict::FallBack => {
                self.counts.fell_back += 1;
                self.calm = 0;
                self.applications.iter_mut().for_each(Sending::go_alone);
            }
            Verdict::Return => self.begin_anew(),
        }
    }

    /// Begins as if nothing had been heard, but for what is granted.
    fn begin_anew(&mut self) {
        self.completing = Price { linear: self.completing_alone, conic: 0.0 };
        (self.follow, self.prices) = (Follow::default(), Follow::default());
        self.begin_receiving();
        self.applications.iter_mut().for_each(Sending::go_alone);
        self.changed();
    }

    fn announce(&mut self) {
        let rates: Vec<(u32, f64)> = self.enforced().collect();
        if rates != self.announced {
            self.announced = rates;
            // Before the messages that tell of them.
            self.outputs.push_front(Output::Rates);
        }
    }
}
