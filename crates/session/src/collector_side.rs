//! The collector's half of a session as a state machine without I/O and clock.
//!
//! One machine per control connection. Feed it with [`Side::handle`] and the commands, and after
//! each call drain [`Side::poll`] until it returns [`Output::Timeout`].
//!
//! ```text
//! WaitHello ──Hello──> Deciding ──challenge()──> WaitProof ──Proof──> Granting ──welcome()──┐
//!     Closing <──Goodbye── Streaming <──ready()── Connecting <──Connect── WaitConnect <─────┘
//!        └──goodbye_ack()──> over
//! ```
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use catchment_verbs::Gid;

use crate::identity::{Instance, Nonce};
use crate::machine::{self, Core, Stage, unknown_stream};
use crate::message::{
    Challenge, Connect, Goodbye, GoodbyeAck, Hello, Message, MessageKind, Pong, Proof,
    ProviderOffer, Ready, SinkReport, SourceStats, StreamDelivered, Welcome,
};
use crate::refusal::{Refusal, RefusalCode};
use crate::source_side::same_streams;

pub use crate::machine::{Ended, Input, Misuse, Output, Side};

/// Settings of the collector's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectorSideConfig {
    /// Time limit for Hello, again for Proof and for Connect.
    pub handshake: Duration,
}

impl Default for CollectorSideConfig {
    fn default() -> Self {
        Self { handshake: Duration::from_secs(5) }
    }
}

/// Events of a collector's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectorEvent {
    /// A source introduces itself; no device is listed twice. Answer with
    /// [`CollectorSide::challenge`] or [`Side::refuse`].
    Hello(Hello),
    /// The Hello is of the process that it names, and not an old one. Answer with
    /// [`CollectorSide::welcome`] or [`Side::refuse`].
    Proven,
    /// The source's queue pair is ready; the streams are exactly those of the Welcome, and none
    /// begins below its grant. Make ours ready, then call [`CollectorSide::ready`].
    Connect(Connect),
    /// Counters of the source, of streams of this session.
    Stats(SourceStats),
    /// The source has sent everything. Deliver it, then call [`CollectorSide::goodbye_ack`].
    Goodbye(Goodbye),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    WaitHello,
    Deciding,
    WaitProof,
    Granting,
    WaitConnect,
    Connecting,
    Streaming,
    Closing,
    Over,
}

impl machine::State for State {
    const OVER: Self = Self::Over;

    fn facts(self) -> (&'static str, Stage) {
        use MessageKind::{Connect, Hello, Proof};
        match self {
            Self::WaitHello => ("the collector waits for Hello", Stage::Awaits(Hello)),
            Self::Deciding => ("the collector prepares Challenge", Stage::Prepares),
            Self::WaitProof => ("the collector waits for Proof", Stage::Awaits(Proof)),
            Self::Granting => ("the collector prepares Welcome", Stage::Prepares),
            Self::WaitConnect => ("the collector waits for Connect", Stage::Awaits(Connect)),
            Self::Connecting => ("the collector prepares Ready", Stage::Prepares),
            Self::Streaming => ("frames are received", Stage::Runs),
            Self::Closing => ("the collector delivers the last frames", Stage::Runs),
            Self::Over => ("the session is over", Stage::Over),
        }
    }
}

/// State of a stream, for checks.
#[derive(Debug)]
struct Stream {
    /// Lowest valid packet number: granted, then begun.
    from: u64,
}

/// Most packet numbers that a source may leave out when a session begins. Numbers are used up for ever, so
/// a source that took the last ones would end its device for all who come after it.
pub const JUMP_MAX: u64 = 1 << 40;

/// The collector's half of one session.
#[derive(Debug)]
pub struct CollectorSide {
    core: Core<State, CollectorEvent>,
    /// Who Hello says that it is from, and which attempt.
    claim: Option<(Instance, u64)>,
    nonce: Option<Nonce>,
    /// Stream numbers, sorted, and beside them their state.
    numbers: Vec<u32>,
    streams: Vec<Stream>,
    /// Offers of the Hello; only the chosen one after the Welcome.
    offers: Vec<ProviderOffer>,
}

impl Side for CollectorSide {
    type Event = CollectorEvent;

    fn handle(&mut self, now: Instant, input: Input) {
        if let Some(message) = self.core.handle(now, input)
            && let Err(refusal) = self.accept(message)
        {
            self.core.refuse(refusal, Ended::Misbehaved);
        }
    }

    fn poll(&mut self) -> Output<CollectorEvent> {
        self.core.poll(None)
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.core.refuse(refusal, Ended::Withdrawn);
    }
}

impl CollectorSide {
    /// Creates a machine for a connection that has just been accepted.
    pub fn new(now: Instant, config: CollectorSideConfig) -> Self {
        Self {
            core: Core::new(now, config.handshake, State::WaitHello),
            claim: None,
            nonce: None,
            numbers: Vec::new(),
            streams: Vec::new(),
            offers: Vec::new(),
        }
    }

    /// Asks the source to prove that the Hello is its own, with a number that was never used before.
    ///
    /// # Errors
    /// No Hello awaits an answer. After the end of the session it does nothing.
    pub fn challenge(&mut self, now: Instant, nonce: Nonce) -> Result<(), Misuse> {
        if self.core.may("challenge", &[State::Deciding])? {
            self.nonce = Some(nonce);
            self.core.transmit(Message::Challenge(Challenge { nonce }));
            self.core.handshake_until = now + self.core.handshake;
            self.core.state = State::WaitProof;
        }
        Ok(())
    }

    /// Accepts the source. The streams of `welcome` should be the devices of its Hello.
    ///
    /// # Errors
    /// No proven Hello awaits an answer. After the end of the session it does nothing.
    pub fn welcome(&mut self, now: Instant, welcome: Welcome) -> Result<(), Misuse> {
        if self.core.may("welcome", &[State::Granting])? {
            let mut streams: Vec<(u32, u64)> = welcome
                .streams
                .iter()
                .map(|grant| (grant.stream, grant.next_packet.unwrap_or(0)))
                .collect();
            streams.sort_unstable();
            self.numbers = streams.iter().map(|&(number, _)| number).collect();
            self.streams = streams.iter().map(|&(_, from)| Stream { from }).collect();
            let path = &welcome.path;
            self.offers.retain(|offer| offer.name == path.source && offer.gid == path.source_gid);
            self.core.epoch = welcome.epoch;
            self.core.lease.set_time(Duration::from_millis(welcome.lease_ms.into()));
            self.core.handshake_until = now + self.core.handshake;
            self.core.transmit(Message::Welcome(welcome));
            self.core.state = State::WaitConnect;
        }
        Ok(())
    }

    /// Lets the source send: the queue pair is ready.
    ///
    /// # Errors
    /// No Connect awaits an answer. After the end of the session it does nothing.
    pub fn ready(&mut self, now: Instant) -> Result<(), Misuse> {
        if self.core.may("ready", &[State::Connecting])? {
            self.core.heard(now);
            self.core.transmit(Message::Ready(Ready { epoch: self.core.epoch }));
            self.core.state = State::Streaming;
        }
        Ok(())
    }

    /// Tells the source how many of its streams have a frame that their sink refuses, and why one does.
    ///
    /// # Errors
    /// No frames are received in this state. After the end of the session it does nothing.
    pub fn sink_report(&mut self, refusing: u32, reason: Option<String>) -> Result<(), Misuse> {
        if self.core.may("sink_report", &[State::Streaming, State::Closing])? {
            let report = SinkReport { epoch: self.core.epoch, refusing, reason };
            self.core.transmit(Message::SinkReport(report));
        }
        Ok(())
    }

    /// Ends the session: everything is delivered. `delivered` names every stream once.
    ///
    /// # Errors
    /// No Goodbye awaits an answer. After the end of the session it does nothing.
    pub fn goodbye_ack(&mut self, delivered: Vec<StreamDelivered>) -> Result<(), Misuse> {
        if self.core.may("goodbye_ack", &[State::Closing])? {
            let epoch = self.core.epoch;
            self.core.transmit(Message::GoodbyeAck(GoodbyeAck { epoch, delivered }));
            self.core.end(Ended::Finished);
        }
        Ok(())
    }

    fn accept(&mut self, message: Message) -> Result<(), Refusal> {
        let kind = message.kind();
        match (message, self.core.state) {
            (Message::Hello(hello), State::WaitHello) => self.on_hello(hello)?,
            (Message::Proof(proof), State::WaitProof) => self.on_proof(&proof)?,
            (Message::Connect(connect), State::WaitConnect) => self.on_connect(connect)?,
            // Also while streaming: the source may have given up before it read our Ready.
            (
                Message::Refused(refusal),
                State::Deciding
                | State::WaitProof
                | State::Granting
                | State::WaitConnect
                | State::Connecting
                | State::Streaming,
            ) => {
                self.core.end(Ended::Refused(refusal));
            }
            (Message::Revoke(revoke), State::Streaming | State::Closing) => {
                self.core.end(Ended::Revoked(revoke.into_refusal()));
            }
            (Message::Ping(ping), State::Streaming | State::Closing) => {
                let pong = Pong { epoch: ping.epoch, seq: ping.seq };
                self.core.transmit(Message::Pong(pong));
            }
            (Message::SourceStats(stats), State::Streaming | State::Closing) => {
                self.on_stats(stats)?;
            }
            (Message::Goodbye(goodbye), State::Streaming) => self.on_goodbye(goodbye)?,
            _ => return Err(self.core.unexpected(kind)),
        }
        Ok(())
    }

    fn on_hello(&mut self, hello: Hello) -> Result<(), Refusal> {
        check_hello(&hello)?;
        self.offers.clone_from(&hello.providers);
        self.claim = Some((hello.instance, hello.attempt));
        self.core.state = State::Deciding;
        self.core.event(CollectorEvent::Hello(hello));
        Ok(())
    }

    fn on_proof(&mut self, proof: &Proof) -> Result<(), Refusal> {
        let asked = self.claim.zip(self.nonce.take());
        let proves = |((instance, attempt), nonce): ((Instance, u64), Nonce)| {
            instance.proves(nonce, attempt, &proof.signature)
        };
        if !asked.is_some_and(proves) {
            let reason = "the proof is not of the process that Hello names, or not of this Hello";
            let remedy = "send a Hello of your own";
            return Err(Refusal::new(RefusalCode::NotAllowed, reason, remedy));
        }
        self.core.state = State::Granting;
        self.core.event(CollectorEvent::Proven);
        Ok(())
    }

    fn on_connect(&mut self, connect: Connect) -> Result<(), Refusal> {
        let numbers = connect.streams.iter().map(|start| start.stream);
        same_streams(MessageKind::Connect, &self.numbers, numbers)?;
        self.check_gid(connect.endpoint.gid)?;
        for start in &connect.streams {
            self.advance(MessageKind::Connect, start.stream, start.first_packet, JUMP_MAX)?;
        }
        self.core.state = State::Connecting;
        self.core.event(CollectorEvent::Connect(connect));
        Ok(())
    }

    /// Checks that the queue pair is at the address that the path was chosen for.
    fn check_gid(&self, seen: Gid) -> Result<(), Refusal> {
        let Some(offer) = self.offers.iter().find(|offer| offer.gid != seen) else { return Ok(()) };
        let reason =
            format!("Connect names GID {seen}, Hello offered {} at GID {}", offer.name, offer.gid);
        let remedy = "connect from the device that Hello offered";
        Err(Refusal::new(RefusalCode::BadMessage, reason, remedy))
    }

    fn on_stats(&mut self, stats: SourceStats) -> Result<(), Refusal> {
        let mut seen = BTreeSet::new();
        for stream in stats.streams.iter().map(|stats| stats.stream) {
            let known = self.numbers.binary_search(&stream).is_ok();
            if !known || !seen.insert(stream) {
                let what = if known { "twice" } else { "not of this session" };
                let problem = format_args!("stream {stream} is {what}");
                return Err(unknown_stream(MessageKind::SourceStats, problem));
            }
        }
        self.core.event(CollectorEvent::Stats(stats));
        Ok(())
    }

    fn on_goodbye(&mut self, goodbye: Goodbye) -> Result<(), Refusal> {
        let numbers = goodbye.streams.iter().map(|end| end.stream);
        same_streams(MessageKind::Goodbye, &self.numbers, numbers)?;
        for end in &goodbye.streams {
            self.advance(MessageKind::Goodbye, end.stream, end.end_packet, u64::MAX)?;
        }
        self.core.state = State::Closing;
        self.core.event(CollectorEvent::Goodbye(goodbye));
        Ok(())
    }

    /// Advances a stream, whose packet numbers only grow: grant, begin, end. By `most` at most.
    fn advance(
        &mut self,
        kind: MessageKind,
        stream: u32,
        to: u64,
        most: u64,
    ) -> Result<(), Refusal> {
        let index = self.numbers.binary_search(&stream).unwrap_or(0);
        let from = &mut self.streams[index].from;
        if to < *from {
            let reason = format!("{kind}: stream {stream} goes back from packet {from} to {to}");
            let remedy = "continue from next_packet of Welcome";
            return Err(Refusal::new(RefusalCode::BadResume, reason, remedy));
        }
        if to - *from > most {
            let reason = format!(
                "{kind}: stream {stream} jumps from packet {from} to {to}, at most {most} may be left out"
            );
            let remedy = "restart the source, which then continues where the collector is";
            return Err(Refusal::new(RefusalCode::BadResume, reason, remedy));
        }
        *from = to;
        Ok(())
    }
}

fn check_hello(hello: &Hello) -> Result<(), Refusal> {
    let mut names = BTreeSet::new();
    if let Some(device) = hello.devices.iter().find(|d| !names.insert(&d.name)) {
        let reason = format!("Hello names device {} twice", device.name);
        let remedy = "give every device a name of its own";
        return Err(Refusal::new(RefusalCode::DuplicateDevice, reason, remedy));
    }
    let mut places = BTreeSet::new();
    let mut offers = hello.providers.iter();
    if let Some(offer) = offers.find(|offer| !places.insert((&offer.name, offer.gid.0))) {
        let reason = format!("Hello offers provider {} twice at GID {}", offer.name, offer.gid);
        let remedy = "offer every provider once at each address";
        return Err(Refusal::new(RefusalCode::BadMessage, reason, remedy));
    }
    Ok(())
}
