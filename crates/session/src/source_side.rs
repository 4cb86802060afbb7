//! The source's half of a session as a state machine without I/O and clock.
//!
//! One machine per control connection. Feed it with [`Side::handle`] and the commands, and after
//! each call drain [`Side::poll`] until it returns [`Output::Timeout`].
//!
//! ```text
//! Hello ──> WaitChallenge ──Challenge──> WaitWelcome ──Welcome──> Deciding ──connect()──> WaitReady
//!                                      Leaving <──goodbye()── Streaming <──Ready──────────────┘
//! ```
use std::time::{Duration, Instant};

use catchment_verbs::Endpoint;

use crate::identity::Identity;
use crate::machine::{self, Core, Stage, unknown_stream};
use crate::message::{
    Challenge, Connect, Goodbye, GoodbyeAck, Hello, Message, MessageKind, Ping, Pong, Proof,
    ProtocolRange, STATS_STREAMS_MAX, SessionPath, SinkReport, SourceStats, StreamEnd, StreamStart,
    StreamStats, Welcome,
};
use crate::path::KnownProviders;
use crate::refusal::{Refusal, RefusalCode};

pub use crate::machine::{Ended, Input, Misuse, Output, Retry, Side};

/// Settings of the source's side.
#[derive(Debug, Clone)]
pub struct SourceSideConfig {
    /// Providers of this program: the collector may choose no other.
    pub known: KnownProviders,
    /// The key pair of this process; its public half is in Hello.
    pub identity: Identity,
    /// Time limit for Welcome, and again for Ready.
    pub handshake: Duration,
    /// Common origin of neighbouring sources, which aligns their pings: each is sent a little early,
    /// at a whole number of eighths of its period from this instant.
    pub ping_origin: Option<Instant>,
}

/// Instants of a period at which pings are sent.
const PING_SLOTS: u32 = 8;

impl SourceSideConfig {
    /// Returns the usual settings for a process with these providers and this key pair.
    pub fn new(known: KnownProviders, identity: Identity) -> Self {
        Self { known, identity, handshake: Duration::from_secs(5), ping_origin: None }
    }
}

/// Events of a source's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceEvent {
    /// The collector accepts us. Make the queue pair ready, then call [`SourceSide::connect`], or
    /// [`Side::refuse`]. The streams are exactly those of the Hello.
    Welcomed(Welcome),
    /// Frames may be sent.
    Ready,
    /// The collector's sinks refuse frames, or take them again.
    Sink(SinkReport),
    /// The collector has delivered everything; [`Ended::Finished`] follows.
    Delivered(GoodbyeAck),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    WaitChallenge,
    WaitWelcome,
    Deciding,
    WaitReady,
    Streaming,
    Leaving,
    Over,
}

impl machine::State for State {
    const OVER: Self = Self::Over;

    fn facts(self) -> (&'static str, Stage) {
        use MessageKind::{Challenge, Ready, Welcome};
        match self {
            Self::WaitChallenge => ("the source waits for Challenge", Stage::Awaits(Challenge)),
            Self::WaitWelcome => ("the source waits for Welcome", Stage::Awaits(Welcome)),
            Self::Deciding => ("the source prepares Connect", Stage::Prepares),
            Self::WaitReady => ("the source waits for Ready", Stage::Awaits(Ready)),
            Self::Streaming => ("frames are sent", Stage::Runs),
            Self::Leaving => ("the source waits for GoodbyeAck", Stage::Runs),
            Self::Over => ("the session is over", Stage::Over),
        }
    }
}

/// The source's half of one session.
#[derive(Debug)]
pub struct SourceSide {
    core: Core<State, SourceEvent>,
    known: KnownProviders,
    identity: Identity,
    hello: Hello,
    /// Stream numbers of the session, sorted.
    streams: Vec<u32>,
    ping_origin: Option<Instant>,
    ping_seq: u32,
    ping_at: Instant,
    ping_sent: Option<(u32, Instant)>,
    rtt: Option<Duration>,
}

impl Side for SourceSide {
    type Event = SourceEvent;

    fn handle(&mut self, now: Instant, input: Input) {
        let Some(message) = self.core.handle(now, input) else { return self.ping(now) };
        if let Err(refusal) = self.accept(now, message) {
            self.core.refuse(refusal, Ended::Misbehaved);
        }
    }

    fn poll(&mut self) -> Output<SourceEvent> {
        self.core.poll(Some(self.ping_at))
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.core.refuse(refusal, Ended::Withdrawn);
    }
}

impl SourceSide {
    /// Creates a machine for a new connection; its first output is `hello`.
    pub fn new(now: Instant, config: SourceSideConfig, hello: Hello) -> Self {
        let mut core = Core::new(now, config.handshake, State::WaitChallenge);
        core.transmit(Message::Hello(hello.clone()));
        Self {
            core,
            known: config.known,
            identity: config.identity,
            hello,
            streams: Vec::new(),
            ping_origin: config.ping_origin,
            ping_seq: 0,
            ping_at: now,
            ping_sent: None,
            rtt: None,
        }
    }

    /// Sends the collector the address of the queue pair, which is ready, and where every stream
    /// begins.
    ///
    /// # Errors
    /// No Welcome awaits an answer. After the end of the session it does nothing.
    pub fn connect(
        &mut self,
        now: Instant,
        endpoint: Endpoint,
        streams: Vec<StreamStart>,
    ) -> Result<(), Misuse> {
        if self.core.may("connect", &[State::Deciding])? {
            let epoch = self.core.epoch;
            self.core.transmit(Message::Connect(Connect { epoch, endpoint, streams }));
            self.core.handshake_until = now + self.core.handshake;
            self.core.state = State::WaitReady;
        }
        Ok(())
    }

    /// Sends counters, in as many messages as needed.
    ///
    /// # Errors
    /// No frames are sent in this state. After the end of the session it does nothing.
    pub fn stats(&mut self, cpu_us: u64, streams: &[StreamStats]) -> Result<(), Misuse> {
        if !self.core.may("stats", &[State::Streaming, State::Leaving])? {
            return Ok(());
        }
        let epoch = self.core.epoch;
        for part in streams.chunks(STATS_STREAMS_MAX) {
            self.core.transmit(Message::SourceStats(SourceStats {
                epoch,
                cpu_us,
                streams: part.to_vec(),
            }));
        }
        Ok(())
    }

    /// Asks the collector to deliver everything and end the session.
    ///
    /// # Errors
    /// No frames are sent in this state. After the end of the session it does nothing.
    pub fn goodbye(&mut self, streams: Vec<StreamEnd>) -> Result<(), Misuse> {
        if self.core.may("goodbye", &[State::Streaming])? {
            self.core.transmit(Message::Goodbye(Goodbye { epoch: self.core.epoch, streams }));
            self.core.state = State::Leaving;
        }
        Ok(())
    }

    /// Returns the round-trip time of the latest answered ping.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    fn accept(&mut self, now: Instant, message: Message) -> Result<(), Refusal> {
        let kind = message.kind();
        match (message, self.core.state) {
            (Message::Challenge(challenge), State::WaitChallenge) => self.on_challenge(challenge),
            (Message::Welcome(welcome), State::WaitWelcome) => self.on_welcome(welcome)?,
            (Message::Ready(_), State::WaitReady) => self.on_ready(now),
            (
                Message::Refused(refusal),
                State::WaitChallenge | State::WaitWelcome | State::Deciding | State::WaitReady,
            ) => {
                self.core.end(Ended::Refused(refusal));
            }
            (Message::Revoke(revoke), State::Streaming | State::Leaving) => {
                self.core.end(Ended::Revoked(revoke.into_refusal()));
            }
            (Message::Pong(pong), State::Streaming | State::Leaving) => self.on_pong(now, pong)?,
            (Message::SinkReport(report), State::Streaming | State::Leaving) => {
                self.core.event(SourceEvent::Sink(report));
            }
            (Message::GoodbyeAck(ack), State::Leaving) => self.on_goodbye_ack(ack)?,
            _ => return Err(self.core.unexpected(kind)),
        }
        Ok(())
    }

    /// Sends a ping if one is due.
    fn ping(&mut self, now: Instant) {
        let alive = matches!(self.core.state, State::Streaming | State::Leaving);
        if !alive || now < self.ping_at {
            return;
        }
        let (epoch, seq) = (self.core.epoch, self.ping_seq);
        self.core.transmit(Message::Ping(Ping { epoch, seq }));
        self.ping_sent = Some((seq, now));
        self.ping_seq = seq.wrapping_add(1);
        self.ping_at = self.next_ping(now);
    }

    fn on_challenge(&mut self, challenge: Challenge) {
        let signature = self.identity.prove(challenge.nonce, self.hello.attempt);
        self.core.transmit(Message::Proof(Proof { signature }));
        self.core.state = State::WaitWelcome;
    }

    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), Refusal> {
        self.streams = check_welcome(&self.hello, &welcome, &self.known)?;
        self.core.epoch = welcome.epoch;
        self.core.lease.set_time(Duration::from_millis(welcome.lease_ms.into()));
        self.core.state = State::Deciding;
        self.core.event(SourceEvent::Welcomed(welcome));
        Ok(())
    }

    fn on_ready(&mut self, now: Instant) {
        self.core.state = State::Streaming;
        self.ping_at = self.next_ping(now);
        self.core.event(SourceEvent::Ready);
    }

    fn on_pong(&mut self, now: Instant, pong: Pong) -> Result<(), Refusal> {
        if pong.seq >= self.ping_seq {
            let reason = format!("pong {} answers no ping", pong.seq);
            let remedy = "answer each ping once, with its number";
            return Err(Refusal::new(RefusalCode::UnexpectedMessage, reason, remedy));
        }
        if let Some((seq, sent)) = self.ping_sent
            && seq == pong.seq
        {
            self.rtt = Some(now - sent);
            self.ping_sent = None;
        }
        Ok(())
    }

    fn on_goodbye_ack(&mut self, ack: GoodbyeAck) -> Result<(), Refusal> {
        let numbers = ack.delivered.iter().map(|done| done.stream);
        same_streams(MessageKind::GoodbyeAck, &self.streams, numbers)?;
        self.core.event(SourceEvent::Delivered(ack));
        self.core.end(Ended::Finished);
        Ok(())
    }

    /// Returns when the next ping is due: a third of the lease from now, or a little earlier together
    /// with those of other sources.
    fn next_ping(&self, now: Instant) -> Instant {
        let period = self.core.lease.period();
        let latest = now + period;
        let step = (period / PING_SLOTS).as_nanos().max(1);
        let since = self.ping_origin.map_or(0, |o| latest.saturating_duration_since(o).as_nanos());
        // Less than a step, so it fits.
        latest - Duration::from_nanos((since % step) as u64)
    }
}

/// Returns the first packet number that a source sends after a (re)connect: the larger of what it
/// still has (`oldest_retained`, or `next_new` when it retains nothing) and what the collector lacks
/// (`collector_next`). Retained frames below it are discarded; when it is above `next_new`, new frames
/// are numbered from it on.
pub fn first_packet(
    oldest_retained: Option<u64>,
    next_new: u64,
    collector_next: Option<u64>,
) -> u64 {
    let have = oldest_retained.unwrap_or(next_new);
    have.max(collector_next.unwrap_or(have))
}

/// Returns the stream numbers of `welcome`, sorted, if it grants exactly the devices of `hello`.
fn check_welcome(
    hello: &Hello,
    welcome: &Welcome,
    known: &KnownProviders,
) -> Result<Vec<u32>, Refusal> {
    let bad = |reason: String| {
        let remedy = "grant every device of Hello one stream, in the provider it offered";
        Refusal::new(RefusalCode::BadMessage, reason, remedy)
    };
    if welcome.protocol < hello.protocol.min || welcome.protocol > hello.protocol.max {
        let ProtocolRange { min, max } = hello.protocol;
        let reason = format!("Welcome chose version {}, not in {min} to {max}", welcome.protocol);
        return Err(bad(reason));
    }
    check_path(hello, &welcome.path, known).map_err(bad)?;
    let mut granted: Vec<_> = welcome.streams.iter().map(|grant| &grant.device).collect();
    let mut wanted: Vec<_> = hello.devices.iter().map(|device| &device.name).collect();
    granted.sort();
    wanted.sort();
    if granted != wanted {
        return Err(bad("Welcome does not grant the devices of Hello".to_owned()));
    }
    let mut streams: Vec<u32> = welcome.streams.iter().map(|grant| grant.stream).collect();
    streams.sort_unstable();
    if let Some(pair) = streams.windows(2).find(|pair| pair[0] == pair[1]) {
        let problem = format_args!("stream {} twice", pair[0]);
        return Err(unknown_stream(MessageKind::Welcome, problem));
    }
    Ok(streams)
}

/// Fails unless the path begins at an offer of `hello` and both of its providers use one wire
/// protocol.
fn check_path(hello: &Hello, path: &SessionPath, known: &KnownProviders) -> Result<(), String> {
    let SessionPath { source, source_gid, collector, path_mtu } = path;
    let mut offers = hello.providers.iter();
    let Some(offer) = offers.find(|o| o.name == *source && o.gid == *source_gid) else {
        return Err(format!("Welcome chose provider {source} at GID {source_gid}, not offered"));
    };
    let wire = known.wire(source);
    if wire.is_none() || wire != known.wire(collector) {
        return Err(format!(
            "Welcome chose {source} at the source and {collector} at the collector, which do \
             not understand each other"
        ));
    }
    match (path_mtu, offer.net) {
        (None, None) => Ok(()),
        (Some(chosen), Some(net)) if *chosen <= net.path_mtu => Ok(()),
        _ => Err(format!(
            "Welcome chose path MTU {}, offered was {}",
            mtu_text(*path_mtu),
            mtu_text(offer.net.map(|net| net.path_mtu))
        )),
    }
}

fn mtu_text(path_mtu: Option<u32>) -> String {
    path_mtu.map_or("none".to_owned(), |mtu| mtu.to_string())
}

/// Fails unless `numbers` are the `streams` (sorted), each once.
pub(crate) fn same_streams(
    kind: MessageKind,
    streams: &[u32],
    numbers: impl Iterator<Item = u32>,
) -> Result<(), Refusal> {
    let mut seen = vec![false; streams.len()];
    for stream in numbers {
        let Ok(index) = streams.binary_search(&stream) else {
            let problem = format_args!("stream {stream} is not of this session");
            return Err(unknown_stream(kind, problem));
        };
        if std::mem::replace(&mut seen[index], true) {
            return Err(unknown_stream(kind, format_args!("stream {stream} twice")));
        }
    }
    match seen.iter().position(|&seen| !seen) {
        Some(index) => {
            let problem = format_args!("stream {} is missing", streams[index]);
            Err(unknown_stream(kind, problem))
        }
        None => Ok(()),
    }
}
