//! The two state machines: wrong peers one by one, then both against each other while connections
//! break, processes die and sessions stay half open.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::collector_side::{CollectorEvent, CollectorSide, CollectorSideConfig};
use super::machine::{Ended, Input, Output, Retry};
use super::message::*;
use super::refusal::{Refusal, RefusalCode};
use super::registry::Registry;
use super::samples;
use super::source_side::{SourceEvent, SourceSide, SourceSideConfig, first_packet};
use super::wire::{Decoder, LONG_BYTES_MAX, encode};

fn drain_source(side: &mut SourceSide) -> (Vec<Message>, Vec<SourceEvent>, Option<Instant>) {
    let (mut messages, mut events) = (Vec::new(), Vec::new());
    loop {
        match side.poll() {
            Output::Transmit(message) => messages.push(message),
            Output::Event(event) => events.push(event),
            Output::Timeout(at) => return (messages, events, at),
        }
    }
}

fn drain_collector(
    side: &mut CollectorSide,
) -> (Vec<Message>, Vec<CollectorEvent>, Option<Instant>) {
    let (mut messages, mut events) = (Vec::new(), Vec::new());
    loop {
        match side.poll() {
            Output::Transmit(message) => messages.push(message),
            Output::Event(event) => events.push(event),
            Output::Timeout(at) => return (messages, events, at),
        }
    }
}

/// A collector that has welcomed [`samples::hello`].
fn welcomed(now: Instant) -> CollectorSide {
    let mut side = CollectorSide::new(now, CollectorSideConfig::default());
    side.handle(now, Input::Message(Message::Hello(samples::hello())));
    drain_collector(&mut side);
    side.welcome(now, samples::welcome()).unwrap();
    drain_collector(&mut side);
    side
}

fn streaming_collector(now: Instant) -> CollectorSide {
    let mut side = welcomed(now);
    side.handle(now, Input::Message(Message::Connect(samples::connect())));
    drain_collector(&mut side);
    side.ready(now).unwrap();
    drain_collector(&mut side);
    side
}

fn streaming_source(now: Instant) -> SourceSide {
    let mut side = SourceSide::new(now, SourceSideConfig::default(), samples::hello());
    drain_source(&mut side);
    side.handle(now, Input::Message(Message::Welcome(samples::welcome())));
    drain_source(&mut side);
    let connect = samples::connect();
    side.connect(now, connect.endpoint, connect.streams)
        .unwrap();
    drain_source(&mut side);
    side.handle(now, Input::Message(Message::Ready(Ready { epoch: 7 })));
    drain_source(&mut side);
    side
}

/// What `side` tells its peer, and how it ends, after `message`.
fn collector_refusal(mut side: CollectorSide, now: Instant, message: Message) -> Refusal {
    side.handle(now, Input::Message(message));
    let (messages, events, timeout) = drain_collector(&mut side);
    let told = match messages.as_slice() {
        [Message::Refused(refusal)] => refusal.clone(),
        [Message::Revoke(revoke)] => revoke.clone().into_refusal(),
        other => panic!("not a refusal: {other:?}"),
    };
    let ended = CollectorEvent::Ended(Ended::Misbehaved(told.clone()));
    assert_eq!(events, vec![ended]);
    assert_eq!(timeout, None);
    told
}

fn source_refusal(mut side: SourceSide, now: Instant, message: Message) -> Refusal {
    side.handle(now, Input::Message(message));
    let (messages, events, _) = drain_source(&mut side);
    let told = match messages.as_slice() {
        [Message::Refused(refusal)] => refusal.clone(),
        [Message::Revoke(revoke)] => revoke.clone().into_refusal(),
        other => panic!("not a refusal: {other:?}"),
    };
    assert_eq!(
        events,
        vec![SourceEvent::Ended(Ended::Misbehaved(told.clone()))]
    );
    told
}

#[test]
fn a_collector_refuses_every_first_message_but_hello() {
    let now = Instant::now();
    for (message, _) in samples::golden() {
        if message.kind() == MessageKind::Hello {
            continue;
        }
        let kind = message.kind();
        let side = CollectorSide::new(now, CollectorSideConfig::default());
        let refusal = collector_refusal(side, now, message);
        assert_eq!(refusal.code, RefusalCode::UnexpectedMessage);
        assert!(refusal.reason.contains(kind.as_str()), "{refusal}");
        assert!(refusal.reason.contains("waits for Hello"), "{refusal}");
    }
}

#[test]
fn a_streaming_side_ends_on_every_message_that_does_not_belong_there() {
    let now = Instant::now();
    use MessageKind::*;
    for (message, _) in samples::golden() {
        let kind = message.kind();
        // Refused may cross our Ready.
        if !matches!(kind, Refused | Ping | SourceStats | Revoke | Goodbye) {
            let refusal = collector_refusal(streaming_collector(now), now, message.clone());
            assert_eq!(refusal.code, RefusalCode::UnexpectedMessage, "{kind}");
        }
        if !matches!(kind, Pong | Revoke) {
            let refusal = source_refusal(streaming_source(now), now, message);
            assert_eq!(refusal.code, RefusalCode::UnexpectedMessage, "{kind}");
        }
    }
}

#[test]
fn a_pong_without_ping_ends_the_session() {
    let now = Instant::now();
    let pong = Message::Pong(Pong { epoch: 7, seq: 0 });
    let refusal = source_refusal(streaming_source(now), now, pong);
    assert_eq!(refusal.code, RefusalCode::UnexpectedMessage);
}

#[test]
fn another_epoch_is_refused_with_both_numbers() {
    let now = Instant::now();
    let connect = Connect {
        epoch: 6,
        ..samples::connect()
    };
    let refusal = collector_refusal(welcomed(now), now, Message::Connect(connect));
    assert_eq!(refusal.code, RefusalCode::WrongEpoch);
    assert!(
        refusal.reason.contains("epoch 6, this session is 7"),
        "{refusal}"
    );
    let ping = Message::Ping(Ping { epoch: 8, seq: 0 });
    let refusal = collector_refusal(streaming_collector(now), now, ping);
    assert_eq!(refusal.code, RefusalCode::WrongEpoch);
    let ready = Message::Ready(Ready { epoch: 8 });
    let refusal = source_refusal(streaming_source(now), now, ready);
    assert_eq!(refusal.code, RefusalCode::WrongEpoch);
}

#[test]
fn streams_must_be_those_of_the_welcome() {
    let now = Instant::now();
    let start = |stream, first_packet| StreamStart {
        stream,
        first_packet,
    };
    for (streams, code, words) in [
        (
            vec![start(0, 0)],
            RefusalCode::UnknownStream,
            "stream 1 is missing",
        ),
        (
            vec![start(0, 0), start(1, 240), start(2, 0)],
            RefusalCode::UnknownStream,
            "stream 2 is not of this session",
        ),
        (
            vec![start(0, 0), start(0, 0)],
            RefusalCode::UnknownStream,
            "stream 0 twice",
        ),
        (
            vec![start(0, 0), start(1, 239)],
            RefusalCode::BadResume,
            "stream 1 goes back from packet 240 to 239",
        ),
    ] {
        let connect = Connect {
            streams,
            ..samples::connect()
        };
        let refusal = collector_refusal(welcomed(now), now, Message::Connect(connect));
        assert_eq!(refusal.code, code);
        assert!(refusal.reason.contains(words), "{refusal}");
    }
    let mut stats = samples::stats();
    stats.streams[0].stream = 9;
    let refusal = collector_refusal(streaming_collector(now), now, Message::SourceStats(stats));
    assert_eq!(refusal.code, RefusalCode::UnknownStream);
    let mut stats = samples::stats();
    stats.streams.push(stats.streams[0]);
    let refusal = collector_refusal(streaming_collector(now), now, Message::SourceStats(stats));
    assert!(refusal.reason.contains("stream 1 is twice"), "{refusal}");
    let mut goodbye = samples::goodbye();
    goodbye.streams[1].end_packet = 244;
    let refusal = collector_refusal(streaming_collector(now), now, Message::Goodbye(goodbye));
    assert_eq!(refusal.code, RefusalCode::BadResume);
}

#[test]
fn a_hello_that_names_something_twice_is_refused() {
    let now = Instant::now();
    let fresh = || CollectorSide::new(now, CollectorSideConfig::default());
    let mut hello = samples::hello();
    hello.devices[1].name = hello.devices[0].name.clone();
    let refusal = collector_refusal(fresh(), now, Message::Hello(hello));
    assert_eq!(refusal.code, RefusalCode::DuplicateDevice);
    assert!(refusal.reason.contains("device cam0 twice"), "{refusal}");
    let mut hello = samples::hello();
    hello.providers.push(hello.providers[0].clone());
    let refusal = collector_refusal(fresh(), now, Message::Hello(hello));
    assert_eq!(refusal.code, RefusalCode::BadMessage);
}

#[test]
fn a_source_checks_what_it_is_granted() {
    let now = Instant::now();
    let fresh = || {
        let mut side = SourceSide::new(now, SourceSideConfig::default(), samples::hello());
        drain_source(&mut side);
        side
    };
    type Change = fn(&mut Welcome);
    let changes: [(&str, Change); 5] = [
        ("version 2", |w| w.protocol = 2),
        ("provider roce", |w| w.provider = "roce".to_owned()),
        ("devices of Hello", |w| w.streams.truncate(1)),
        ("devices of Hello", |w| {
            w.streams[1].device = "x".parse().unwrap()
        }),
        ("stream 0 twice", |w| w.streams[1].stream = 0),
    ];
    for (words, change) in changes {
        let mut welcome = samples::welcome();
        change(&mut welcome);
        let refusal = source_refusal(fresh(), now, Message::Welcome(welcome));
        assert!(refusal.reason.contains(words), "{refusal}");
    }
}

#[test]
fn refusals_end_the_source_and_say_whether_to_try_again() {
    let now = Instant::now();
    for code in RefusalCode::known() {
        let mut side = SourceSide::new(now, SourceSideConfig::default(), samples::hello());
        drain_source(&mut side);
        let refusal = Refusal::new(code.clone(), "because", "do this");
        side.handle(now, Input::Message(Message::Refused(refusal.clone())));
        let (messages, events, _) = drain_source(&mut side);
        assert!(messages.is_empty());
        let ended = Ended::Refused(refusal);
        let expected = match code.retry_after_ms() {
            Some(ms) => Retry::After(Duration::from_millis(ms.into())),
            None => Retry::Never,
        };
        assert_eq!(ended.retry(), expected);
        assert_eq!(events, vec![SourceEvent::Ended(ended)]);
    }
}

#[test]
fn a_silent_peer_ends_the_handshake_on_both_sides() {
    let now = Instant::now();
    let late = now + Duration::from_secs(5);
    let mut collector = CollectorSide::new(now, CollectorSideConfig::default());
    assert_eq!(drain_collector(&mut collector).2, Some(late));
    collector.handle(now + Duration::from_secs(4), Input::Timeout);
    assert_eq!(drain_collector(&mut collector).1, vec![]);
    collector.handle(late, Input::Timeout);
    let (messages, events, _) = drain_collector(&mut collector);
    assert!(matches!(&messages[..], [Message::Refused(r)] if r.code == RefusalCode::Timeout));
    let waiting = |events: &[CollectorEvent], kind| matches!(events, [CollectorEvent::Ended(Ended::HandshakeTimeout { waiting_for, .. })] if *waiting_for == kind);
    assert!(waiting(&events, MessageKind::Hello));
    let mut collector = welcomed(now);
    collector.handle(late, Input::Timeout);
    assert!(waiting(
        &drain_collector(&mut collector).1,
        MessageKind::Connect
    ));
    let mut source = SourceSide::new(now, SourceSideConfig::default(), samples::hello());
    assert_eq!(drain_source(&mut source).2, Some(late));
    source.handle(late, Input::Timeout);
    let (_, events, _) = drain_source(&mut source);
    let [SourceEvent::Ended(ended)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(ended.retry(), Retry::After(Duration::ZERO));
}

#[test]
fn pings_keep_the_lease_and_silence_ends_it_on_both_sides() {
    let start = Instant::now();
    let mut source = streaming_source(start);
    let mut collector = streaming_collector(start);
    let mut now = start;
    for _ in 0..10 {
        now = drain_source(&mut source).2.unwrap();
        source.handle(now, Input::Timeout);
        let (messages, events, _) = drain_source(&mut source);
        assert!(events.is_empty());
        for message in messages {
            collector.handle(now, Input::Message(message));
        }
        let (messages, events, _) = drain_collector(&mut collector);
        assert!(events.is_empty());
        now += Duration::from_millis(3);
        for message in messages {
            source.handle(now, Input::Message(message));
        }
        assert_eq!(source.rtt(), Some(Duration::from_millis(3)));
    }
    assert!(now - start > Duration::from_secs(9), "three leases passed");
    let heard = now - Duration::from_millis(3);
    let until = drain_collector(&mut collector).2.unwrap();
    assert_eq!(until, heard + Duration::from_secs(3));
    collector.handle(until, Input::Timeout);
    let (messages, events, _) = drain_collector(&mut collector);
    assert!(matches!(&messages[..], [Message::Revoke(_)]));
    assert!(matches!(
        &events[..],
        [CollectorEvent::Ended(Ended::LeaseExpired { .. })]
    ));
    // The source pings on without an answer until its lease ends too.
    let mut events = Vec::new();
    while events.is_empty() {
        let at = drain_source(&mut source).2.unwrap();
        assert!(at <= now + Duration::from_secs(3));
        source.handle(at, Input::Timeout);
        events = drain_source(&mut source).1;
    }
    assert!(matches!(
        &events[..],
        [SourceEvent::Ended(Ended::LeaseExpired { .. })]
    ));
}

#[test]
fn a_command_in_the_wrong_state_is_an_error_of_ours_and_after_the_end_nothing() {
    let now = Instant::now();
    let mut source = SourceSide::new(now, SourceSideConfig::default(), samples::hello());
    drain_source(&mut source);
    let misuse = source.goodbye(vec![]).unwrap_err();
    assert_eq!(
        misuse.to_string(),
        "goodbye called while the source waits for Welcome"
    );
    source.handle(now, Input::Disconnected);
    drain_source(&mut source);
    source.goodbye(vec![]).unwrap();
    assert_eq!(drain_source(&mut source), (vec![], vec![], None));
    let mut collector = streaming_collector(now);
    assert!(collector.ready(now).is_err());
    assert!(collector.goodbye_ack(vec![]).is_err());
}

#[test]
fn many_streams_are_counted_in_several_messages() {
    let now = Instant::now();
    let mut source = streaming_source(now);
    let stats = vec![StreamStats::default(); 600];
    source.stats(1, &stats).unwrap();
    let (messages, _, _) = drain_source(&mut source);
    assert_eq!(messages.len(), 3);
    for message in &messages {
        encode(message, &mut Vec::new()).unwrap();
    }
}

#[test]
fn resumption_begins_at_the_larger_of_both_sides() {
    // (oldest retained, next new, collector lacks) -> first packet
    for (retained, next, lacks, first) in [
        (None, 0, None, 0),
        (None, 0, Some(100), 100),
        (Some(90), 120, Some(100), 100),
        (Some(110), 120, Some(100), 110),
        (Some(90), 120, None, 90),
        (Some(90), 120, Some(120), 120),
        (None, 120, Some(100), 120),
        (None, 120, Some(130), 130),
    ] {
        assert_eq!(first_packet(retained, next, lacks), first);
    }
}

// ---- both machines against each other ----

const FRAMES: u64 = 12;
const LEASE_MS: u32 = 600;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// One direction of a connection: bytes, and a decoder that gets them in pieces.
struct Pipe {
    messages: VecDeque<Vec<u8>>,
    decoder: Decoder,
}

impl Pipe {
    fn new() -> Pipe {
        Pipe {
            messages: VecDeque::new(),
            decoder: Decoder::new(LONG_BYTES_MAX),
        }
    }

    fn push(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        self.messages.push_back(bytes);
    }

    fn pop(&mut self, rng: &mut Rng) -> Option<Message> {
        let bytes = self.messages.pop_front()?;
        let cut = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
        let (mut head, mut tail) = bytes.split_at(cut);
        assert_eq!(self.decoder.decode(&mut head), Ok(None));
        Some(self.decoder.decode(&mut tail).unwrap().unwrap())
    }
}

/// A source process.
struct Source {
    instance: u64,
    oldest: u64,
    next_new: u64,
    next_send: u64,
}

/// The collector's end of one session, perhaps half open.
struct Session {
    side: CollectorSide,
    epoch: u32,
    /// Packet numbers committed in this session's ring and not yet delivered.
    ring: VecDeque<u64>,
    end: Option<u64>,
    ended: Option<Ended>,
}

struct World {
    rng: Rng,
    now: Instant,
    registry: Registry,
    sessions: BTreeMap<u64, Session>,
    delivered: Vec<u64>,
    source: Source,
    connections: u64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rng: Rng(seed),
            now: Instant::now(),
            registry: Registry::new(),
            sessions: BTreeMap::new(),
            delivered: Vec::new(),
            source: Source {
                instance: seed,
                oldest: 0,
                next_new: 0,
                next_send: 0,
            },
            connections: 0,
        }
    }

    fn hello(&self) -> Hello {
        let mut hello = samples::hello();
        hello.instance = self.source.instance;
        hello.devices.truncate(1);
        hello.devices[0].next_packet = self.source.next_new;
        hello
    }

    fn next_packet(&self) -> Option<u64> {
        self.delivered.last().map(|last| last + 1)
    }

    fn deliver(&mut self, id: u64, count: usize) {
        let session = self.sessions.get_mut(&id).unwrap();
        for packet in session.ring.drain(..count.min(session.ring.len())) {
            self.delivered.push(packet);
        }
    }

    /// The session is over at the collector: some of what is committed is still delivered.
    fn close(&mut self, id: u64) {
        let left = self.sessions[&id].ring.len() as u64;
        let count = usize::try_from(self.rng.below(left + 1)).unwrap();
        self.deliver(id, count);
        self.sessions.get_mut(&id).unwrap().ring.clear();
        self.registry.release(id);
    }

    /// Does what a collector's engine does with a Hello.
    fn admit(&mut self, id: u64, hello: &Hello) {
        let superseded = match self.registry.claim(id, hello) {
            Ok(superseded) => superseded,
            Err(refusal) => {
                let refusal = refusal.retry_after_ms(100);
                return self.sessions.get_mut(&id).unwrap().side.refuse(refusal);
            }
        };
        for old in superseded {
            let refusal = Refusal::new(RefusalCode::Superseded, "a newer session", "none");
            self.sessions.get_mut(&old).unwrap().side.refuse(refusal);
            let _ = self.collector_outputs(old);
        }
        let mut welcome = samples::welcome();
        welcome.lease_ms = LEASE_MS;
        welcome.epoch = self.sessions[&id].epoch;
        welcome.streams.truncate(1);
        welcome.streams[0].next_packet = self.next_packet();
        let now = self.now;
        let session = self.sessions.get_mut(&id).unwrap();
        session.side.welcome(now, welcome).unwrap();
    }

    /// Drains the collector's side of session `id`, acting on its events.
    fn collector_outputs(&mut self, id: u64) -> Vec<Message> {
        let mut sent = Vec::new();
        loop {
            let now = self.now;
            match self.sessions.get_mut(&id).unwrap().side.poll() {
                Output::Transmit(message) => sent.push(message),
                Output::Event(CollectorEvent::Hello(hello)) => self.admit(id, &hello),
                Output::Event(CollectorEvent::Connect(_)) => {
                    self.sessions.get_mut(&id).unwrap().side.ready(now).unwrap();
                }
                Output::Event(CollectorEvent::Stats(_)) => {}
                Output::Event(CollectorEvent::Goodbye(goodbye)) => {
                    let session = self.sessions.get_mut(&id).unwrap();
                    session.end = Some(goodbye.streams[0].end_packet);
                }
                Output::Event(CollectorEvent::Ended(ended)) => {
                    self.sessions.get_mut(&id).unwrap().ended = Some(ended);
                    self.close(id);
                }
                Output::Timeout(_) => return sent,
            }
        }
    }

    /// Lets `pass` go by; collector sessions without a peer run into their timeouts.
    fn wait(&mut self, pass: Duration) {
        self.now += pass;
        let ids: Vec<u64> = self.sessions.keys().copied().collect();
        for id in ids {
            let now = self.now;
            let session = self.sessions.get_mut(&id).unwrap();
            session.side.handle(now, Input::Timeout);
            let _ = self.collector_outputs(id);
        }
        self.sessions.retain(|_, session| session.ended.is_none());
    }

    /// One connection until it ends or has carried `budget` messages; how the source ended.
    fn connection(&mut self, budget: u64) -> Ended {
        self.connections += 1;
        let id = self.connections;
        let config = CollectorSideConfig::default();
        let session = Session {
            side: CollectorSide::new(self.now, config),
            epoch: u32::try_from(id).unwrap(),
            ring: VecDeque::new(),
            end: None,
            ended: None,
        };
        self.sessions.insert(id, session);
        let mut link = Link {
            id,
            side: SourceSide::new(self.now, SourceSideConfig::default(), self.hello()),
            to_collector: Pipe::new(),
            to_source: Pipe::new(),
            streaming: false,
            left: budget,
        };
        for _ in 0..10_000 {
            if let Some(ended) = link.step(self) {
                return ended;
            }
        }
        panic!("the session neither ends nor breaks");
    }

    fn check(&self) {
        let expected: Vec<u64> = (0..self.delivered.len() as u64).collect();
        assert_eq!(self.delivered, expected, "each frame once and in order");
    }
}

struct Link {
    id: u64,
    side: SourceSide,
    to_collector: Pipe,
    to_source: Pipe,
    streaming: bool,
    left: u64,
}

impl Link {
    /// One message, one frame, or one span of time.
    fn step(&mut self, world: &mut World) -> Option<Ended> {
        if let Some(ended) = self.source_outputs(world) {
            return Some(ended);
        }
        for message in world.collector_outputs(self.id) {
            self.to_source.push(&message);
        }
        if self.left == 0 {
            return Some(self.break_off(world));
        }
        let to_collector = !self.to_collector.messages.is_empty();
        let to_source = !self.to_source.messages.is_empty();
        if to_collector && (!to_source || world.rng.chance(50)) {
            self.left -= 1;
            let message = self.to_collector.pop(&mut world.rng)?;
            let session = world.sessions.get_mut(&self.id).unwrap();
            session.side.handle(world.now, Input::Message(message));
        } else if to_source {
            self.left -= 1;
            let message = self.to_source.pop(&mut world.rng)?;
            self.side.handle(world.now, Input::Message(message));
        } else {
            self.idle(world);
        }
        None
    }

    fn source_outputs(&mut self, world: &mut World) -> Option<Ended> {
        loop {
            match self.side.poll() {
                Output::Transmit(message) => self.to_collector.push(&message),
                Output::Event(SourceEvent::Welcomed(welcome)) => self.resume(world, &welcome),
                Output::Event(SourceEvent::Ready) => self.streaming = true,
                Output::Event(SourceEvent::Delivered(ack)) => {
                    assert_eq!(ack.delivered[0].next_packet, world.source.next_new);
                }
                Output::Event(SourceEvent::Ended(ended)) => {
                    self.streaming = false;
                    return Some(ended);
                }
                Output::Timeout(_) => return None,
            }
        }
    }

    fn resume(&mut self, world: &mut World, welcome: &Welcome) {
        let source = &mut world.source;
        let retained = (source.oldest < source.next_new).then_some(source.oldest);
        let first = first_packet(retained, source.next_new, welcome.streams[0].next_packet);
        source.oldest = first;
        source.next_send = first;
        source.next_new = source.next_new.max(first);
        let start = StreamStart {
            stream: welcome.streams[0].stream,
            first_packet: first,
        };
        self.side
            .connect(world.now, samples::connect().endpoint, vec![start])
            .unwrap();
    }

    /// No message is under way: frames move, counters are sent, time passes.
    fn idle(&mut self, world: &mut World) {
        match world.rng.below(6) {
            0 | 1 if self.streaming => self.write_frame(world),
            2 => world.deliver(self.id, 1),
            3 if self.streaming => self.side.stats(1, &[StreamStats::default()]).unwrap(),
            4 => self.finish(world),
            _ => {
                world.now += Duration::from_millis(world.rng.below(100));
                self.side.handle(world.now, Input::Timeout);
            }
        }
    }

    fn write_frame(&mut self, world: &mut World) {
        let source = &mut world.source;
        if source.next_send == source.next_new && source.next_new < FRAMES {
            source.next_new += 1;
        }
        let session = world.sessions.get_mut(&self.id).unwrap();
        if source.next_send < source.next_new {
            session.ring.push_back(source.next_send);
            source.next_send += 1;
        }
        // The source sees some of what was delivered as free and need not keep it.
        let delivered = world.delivered.last().map_or(0, |last| last + 1);
        if world.rng.chance(50) {
            source.oldest = source.oldest.max(delivered).min(source.next_new);
        }
    }

    fn finish(&mut self, world: &mut World) {
        let source = &world.source;
        let sent_all = source.next_send >= FRAMES && source.next_send == source.next_new;
        let session = world.sessions.get_mut(&self.id).unwrap();
        if session.end.is_some() {
            world.deliver(self.id, usize::MAX);
            let next_packet = world.delivered.last().map_or(0, |last| last + 1);
            let done = StreamDelivered {
                stream: 0,
                next_packet,
                frames: 0,
                lost: 0,
            };
            let session = world.sessions.get_mut(&self.id).unwrap();
            session.side.goodbye_ack(vec![done]).unwrap();
        } else if self.streaming && sent_all {
            let end = StreamEnd {
                stream: 0,
                end_packet: source.next_new,
            };
            self.streaming = false;
            self.side.goodbye(vec![end]).unwrap();
        }
    }

    /// The connection breaks; the collector may not notice.
    fn break_off(&mut self, world: &mut World) -> Ended {
        if world.rng.chance(50) {
            let session = world.sessions.get_mut(&self.id).unwrap();
            session.side.handle(world.now, Input::Disconnected);
            let _ = world.collector_outputs(self.id);
        }
        if world.rng.chance(30) {
            // The source process dies with all that it retained.
            world.source.instance += 1_000_000;
            world.source.oldest = 0;
            world.source.next_new = 0;
            return Ended::Disconnected { state: "killed" };
        }
        self.side.handle(world.now, Input::Disconnected);
        self.source_outputs(world).unwrap()
    }
}

/// Connects again and again until all frames are delivered; the number of connections.
fn run(seed: u64) -> u64 {
    let mut world = World::new(seed);
    let backoff = Backoff::new(seed);
    for attempt in 0..200 {
        // The first connections break at every message boundary in turn, later ones hold.
        let budget = match attempt {
            0 => seed % 16,
            1..12 => world.rng.below(16),
            _ => u64::MAX,
        };
        let ended = world.connection(budget);
        world.check();
        if ended == Ended::Finished {
            assert!(world.delivered.len() as u64 >= FRAMES);
            return world.connections;
        }
        let Retry::After(wait) = ended.retry() else {
            panic!("seed {seed}: the source gives up: {ended}");
        };
        world.wait(backoff.delay(attempt, wait));
    }
    panic!("seed {seed}: not finished after 200 connections");
}

#[test]
fn a_thousand_seeds_of_broken_connections_deliver_every_frame_once() {
    let mut connections = 0;
    for seed in 0..1_000 {
        let result = std::panic::catch_unwind(|| run(seed));
        match result {
            Ok(count) => connections += count,
            Err(_) => panic!("seed {seed} fails; replay it with run({seed})"),
        }
    }
    assert!(connections > 3_000, "only {connections} connections");
}
