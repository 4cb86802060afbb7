//! The two state machines against each other while connections break at every message boundary,
//! processes die and sessions stay half open.
use crate::backoff::Backoff;
use crate::collector_side::{CollectorEvent, CollectorSide, CollectorSideConfig};
use crate::identity::{Hex, Identity, Nonce};
use crate::machine::{Ended, Input, Output, Retry, Side};
use crate::message::*;
use crate::refusal::{Refusal, RefusalCode};
use crate::registry::Registry;
use crate::samples;
use crate::source_side::{SourceEvent, SourceSide, SourceSideConfig, first_packet};
use crate::wire::{Decoder, LONG_BYTES_MAX, encode};
use catchment_probe::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const FRAMES: u64 = 12;
const LEASE_MS: u32 = 600;

/// One direction of a connection: bytes, and a decoder that gets them in pieces.
struct Pipe {
    messages: VecDeque<Vec<u8>>,
    decoder: Decoder,
}

impl Pipe {
    fn new() -> Self {
        Self { messages: VecDeque::new(), decoder: Decoder::new(LONG_BYTES_MAX) }
    }

    fn push(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        self.messages.push_back(bytes);
    }

    fn pop(&mut self, rng: &mut Random) -> Option<Message> {
        let bytes = self.messages.pop_front()?;
        let cut = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
        let (mut head, mut tail) = bytes.split_at(cut);
        assert_eq!(self.decoder.decode(&mut head), Ok(None));
        Some(self.decoder.decode(&mut tail).unwrap().unwrap())
    }
}

/// A source process.
struct Source {
    identity: Identity,
    attempt: u64,
    oldest: u64,
    next_new: u64,
    next_send: u64,
}

/// The collector's end of one session, perhaps half open.
struct Session {
    side: CollectorSide,
    hello: Option<Hello>,
    epoch: u32,
    /// Packet numbers committed in this session's ring and not yet delivered.
    ring: VecDeque<u64>,
    end: Option<u64>,
    ended: Option<Ended>,
}

struct World {
    rng: Random,
    now: Instant,
    registry: Registry,
    sessions: BTreeMap<u64, Session>,
    delivered: Vec<u64>,
    source: Source,
    connections: u64,
}

fn identity(seed: u64) -> Identity {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    Identity::from_seed(Hex(bytes)).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            rng: Random::new(seed),
            now: Instant::now(),
            registry: Registry::new(),
            sessions: BTreeMap::new(),
            delivered: Vec::new(),
            source: Source {
                identity: identity(seed),
                attempt: 0,
                oldest: 0,
                next_new: 0,
                next_send: 0,
            },
            connections: 0,
        }
    }

    fn hello(&self) -> Hello {
        let mut hello = samples::hello();
        hello.instance = self.source.identity.instance();
        hello.attempt = self.source.attempt;
        hello.devices.truncate(1);
        hello.devices[0].next_packet = self.source.next_new;
        hello
    }

    fn session(&mut self, id: u64) -> &mut Session {
        self.sessions.get_mut(&id).unwrap()
    }

    fn next_packet(&self) -> Option<u64> {
        self.delivered.last().map(|last| last + 1)
    }

    fn deliver(&mut self, id: u64, count: usize) {
        let ring = &mut self.sessions.get_mut(&id).unwrap().ring;
        self.delivered.extend(ring.drain(..count.min(ring.len())));
    }

    /// The session is over at the collector: some of what is committed is still delivered.
    fn close(&mut self, id: u64) {
        let left = self.sessions[&id].ring.len() as u64;
        let count = usize::try_from(self.rng.below(left + 1)).unwrap();
        self.deliver(id, count);
        self.session(id).ring.clear();
        self.registry.release(id);
    }

    /// Does what a collector's engine does with a Hello that is proven.
    fn admit(&mut self, id: u64) {
        let hello = &self.sessions[&id].hello.clone().unwrap();
        let superseded = match self.registry.claim(id, hello) {
            Ok(superseded) => superseded,
            Err(refusal) => return self.session(id).side.refuse(refusal.retry_after_ms(100)),
        };
        for old in superseded {
            let refusal = Refusal::new(RefusalCode::Superseded, "a newer session", "none");
            self.session(old).side.refuse(refusal);
            let _ = self.collector_outputs(old);
        }
        let mut welcome = samples::welcome();
        welcome.lease_ms = LEASE_MS;
        welcome.epoch = self.sessions[&id].epoch;
        welcome.streams.truncate(1);
        welcome.streams[0].next_packet = self.next_packet();
        let now = self.now;
        self.session(id).side.welcome(now, welcome).unwrap();
    }

    /// Drains the collector's side of session `id`, acting on its events.
    fn collector_outputs(&mut self, id: u64) -> Vec<Message> {
        let mut sent = Vec::new();
        loop {
            let now = self.now;
            match self.session(id).side.poll() {
                Output::Transmit(message) => sent.push(message),
                Output::Event(CollectorEvent::Hello(hello)) => {
                    let session = self.session(id);
                    session.hello = Some(hello);
                    session.side.challenge(now, Nonce::random().unwrap()).unwrap();
                }
                Output::Event(CollectorEvent::Proven) => self.admit(id),
                Output::Event(CollectorEvent::Connect(_)) => {
                    self.session(id).side.ready(now).unwrap();
                }
                Output::Event(CollectorEvent::Stats(_)) => {}
                Output::Event(CollectorEvent::Goodbye(goodbye)) => {
                    self.session(id).end = Some(goodbye.streams[0].end_packet);
                }
                Output::Ended(ended) => {
                    self.session(id).ended = Some(ended);
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
            self.session(id).side.handle(now, Input::Timeout);
            let _ = self.collector_outputs(id);
        }
        self.sessions.retain(|_, session| session.ended.is_none());
    }

    /// One connection until it ends or has carried `budget` messages; how the source ended.
    fn connection(&mut self, budget: u64) -> Ended {
        self.connections += 1;
        self.source.attempt += 1;
        let id = self.connections;
        let config = CollectorSideConfig::default();
        let session = Session {
            side: CollectorSide::new(self.now, config),
            hello: None,
            epoch: u32::try_from(id).unwrap(),
            ring: VecDeque::new(),
            end: None,
            ended: None,
        };
        self.sessions.insert(id, session);
        let identity = self.source.identity.clone();
        let config = SourceSideConfig::new(samples::known(), identity);
        let mut link = Link {
            id,
            side: SourceSide::new(self.now, config, self.hello()),
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
        if to_collector && (!to_source || world.rng.below(100) < 50) {
            self.left -= 1;
            let message = self.to_collector.pop(&mut world.rng)?;
            let now = world.now;
            world.session(self.id).side.handle(now, Input::Message(message));
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
                Output::Event(SourceEvent::Sink(_)) => {}
                Output::Event(SourceEvent::Delivered(ack)) => {
                    assert_eq!(ack.delivered[0].next_packet, world.source.next_new);
                }
                Output::Ended(ended) => {
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
        let start = StreamStart { stream: welcome.streams[0].stream, first_packet: first };
        self.side.connect(world.now, samples::connect().endpoint, vec![start]).unwrap();
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
        if source.next_send < source.next_new {
            let ring = &mut world.sessions.get_mut(&self.id).unwrap().ring;
            ring.push_back(source.next_send);
            source.next_send += 1;
        }
        // The source sees some of what was delivered as free and need not keep it.
        let delivered = world.next_packet().unwrap_or(0);
        let source = &mut world.source;
        if world.rng.below(100) < 50 {
            source.oldest = source.oldest.max(delivered).min(source.next_new);
        }
    }

    fn finish(&mut self, world: &mut World) {
        let Source { next_send, next_new, .. } = world.source;
        let sent_all = next_send >= FRAMES && next_send == next_new;
        if world.session(self.id).end.is_some() {
            world.deliver(self.id, usize::MAX);
            let next_packet = world.next_packet().unwrap_or(0);
            let done = StreamDelivered { stream: 0, next_packet, frames: 0, lost: 0 };
            world.session(self.id).side.goodbye_ack(vec![done]).unwrap();
        } else if self.streaming && sent_all {
            let end = StreamEnd { stream: 0, end_packet: next_new };
            self.streaming = false;
            self.side.goodbye(vec![end]).unwrap();
        }
    }

    /// The connection breaks; the collector may not notice.
    fn break_off(&mut self, world: &mut World) -> Ended {
        if world.rng.below(100) < 50 {
            let now = world.now;
            world.session(self.id).side.handle(now, Input::Disconnected);
            let _ = world.collector_outputs(self.id);
        }
        if world.rng.below(100) < 30 {
            // The source process dies with all that it retained.
            world.source.identity = identity(world.connections << 32);
            world.source.attempt = 0;
            world.source.oldest = 0;
            world.source.next_new = 0;
            return Ended::Disconnected("killed");
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
            0 => seed % 18,
            1..12 => world.rng.below(18),
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
