//! Any messages, timeouts and losses into both state machines, whose engine always goes on.
#![no_main]

use std::time::{Duration, Instant};

use catchment_session::collector_side::{CollectorEvent, CollectorSide, CollectorSideConfig};
use catchment_session::identity::{Hex, Identity};
use catchment_session::message::{
    Hello, Message, StreamDelivered, StreamEnd, StreamGrant, StreamStart, Welcome,
};
use catchment_session::path::KnownProviders;
use catchment_session::source_side::{
    Input, Output, Side, SourceEvent, SourceSide, SourceSideConfig,
};
use catchment_session::wire::{Decoder, encode, parse};
use catchment_verbs::{ProviderInfo, Wire};
use libfuzzer_sys::fuzz_target;

const NONCE: Hex<16> = Hex(*b"0123456789abcdef");
const HELLO: &str = include_str!("hello.json");
const WELCOME: &str = include_str!("welcome.json");

fn hello() -> Hello {
    match parse(HELLO.trim().as_bytes()) {
        Ok(Message::Hello(hello)) => hello,
        other => panic!("hello.json: {other:?}"),
    }
}

fn welcome() -> Welcome {
    match parse(WELCOME.trim().as_bytes()) {
        Ok(Message::Welcome(welcome)) => welcome,
        other => panic!("welcome.json: {other:?}"),
    }
}

fn check_sent(message: &Message, over: bool) {
    assert!(!over, "sent after the end: {message:?}");
    encode(message, &mut Vec::new()).expect("what is sent can be written");
}

struct Collector {
    side: CollectorSide,
    hello: Option<Hello>,
    over: bool,
}

impl Collector {
    fn handle(&mut self, now: Instant, input: Input) {
        self.side.handle(now, input);
        loop {
            match self.side.poll() {
                Output::Transmit(message) => check_sent(&message, self.over),
                Output::Event(event) => self.on_event(now, event),
                Output::Ended(_) => self.over = true,
                Output::Timeout(_) => return,
            }
        }
    }

    fn on_event(&mut self, now: Instant, event: CollectorEvent) {
        match event {
            CollectorEvent::Hello(hello) => {
                self.hello = Some(hello);
                self.side.challenge(now, NONCE).expect("a Hello waits");
            }
            CollectorEvent::Proven => {
                let hello = self.hello.take().expect("a Hello came");
                let grant =
                    |(device, stream): (_, u32)| StreamGrant { device, stream, next_packet: None };
                let names = hello.devices.into_iter().map(|device| device.name);
                let mut welcome = welcome();
                welcome.streams = names.zip(0..).map(grant).collect();
                self.side.welcome(now, welcome).expect("a proven Hello waits");
            }
            CollectorEvent::Connect(_) => {
                self.side.ready(now).expect("a Connect waits");
                self.side.sink_report(1, Some("disk full".to_owned())).expect("frames may come");
            }
            CollectorEvent::Stats(_) => {}
            CollectorEvent::Goodbye(goodbye) => {
                let done = |end: &StreamEnd| StreamDelivered {
                    stream: end.stream,
                    next_packet: end.end_packet,
                    frames: 0,
                    lost: 0,
                };
                let delivered = goodbye.streams.iter().map(done).collect();
                self.side.goodbye_ack(delivered).expect("a Goodbye waits");
            }
        }
    }
}

struct Source {
    side: SourceSide,
    over: bool,
}

impl Source {
    fn handle(&mut self, now: Instant, input: Input) {
        self.side.handle(now, input);
        self.drain(now);
    }

    fn drain(&mut self, now: Instant) {
        loop {
            match self.side.poll() {
                Output::Transmit(message) => check_sent(&message, self.over),
                Output::Event(SourceEvent::Welcomed(welcome)) => {
                    let start = |grant: &StreamGrant| StreamStart {
                        stream: grant.stream,
                        first_packet: grant.next_packet.unwrap_or(0),
                    };
                    let streams = welcome.streams.iter().map(start).collect();
                    self.side.connect(now, welcome.endpoint, streams).expect("a Welcome waits");
                }
                Output::Event(
                    SourceEvent::Ready | SourceEvent::Sink(_) | SourceEvent::Delivered(_),
                ) => {}
                Output::Ended(_) => self.over = true,
                Output::Timeout(_) => return,
            }
        }
    }
}

/// The providers of the source.
fn known() -> KnownProviders {
    let provider = |name, rank, wire| ProviderInfo { name, rank, wire, is_hardware: false };
    KnownProviders::new([provider("shm", 0, Wire::Memory), provider("roce", 1, Wire::RoceV2)])
}

fuzz_target!(|bytes: &[u8]| {
    let mut now = Instant::now();
    let mut collector = Collector {
        side: CollectorSide::new(now, CollectorSideConfig::default()),
        hello: None,
        over: false,
    };
    // The key pair of hello.json, and a number that does not change: so the corpus holds proofs that are good.
    let identity = Identity::from_seed(Hex([7; 32])).expect("a seed");
    let config = SourceSideConfig::new(known(), identity);
    let mut source = Source { side: SourceSide::new(now, config, hello()), over: false };
    source.drain(now);
    let mut decoder = Decoder::new(1 << 16);
    let mut input = bytes;
    while let Ok(Some(message)) = decoder.decode(&mut input) {
        collector.handle(now, Input::Message(message.clone()));
        source.handle(now, Input::Message(message));
        // What is left decides how much time passes.
        now += Duration::from_millis((input.len() as u64 * 37) % 2_000);
        collector.handle(now, Input::Timeout);
        source.handle(now, Input::Timeout);
    }
    collector.handle(now, Input::Disconnected);
    source.handle(now, Input::Disconnected);
    assert!(collector.over && source.over);
});
