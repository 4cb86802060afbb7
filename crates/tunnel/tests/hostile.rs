//! A peer that breaks the protocol is told why, and harms its own session only.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]
mod common;

use catchment_channel::{Channel, ChannelShape, Mode, Resources};
use catchment_providers::{Ends, ProviderSet, Providers};
use catchment_session::host::Host;
use catchment_session::io::{Address, ClientSecurity, SecuredStream, StreamReader, StreamWriter};
use catchment_tunnel::session::message::{EndCard, Hello, LABEL, MESSAGE_BYTES, Message, VERSION};
use catchment_verbs::RtsAttr;
use common::{Tunnel, echo};
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// An end with clients that does what the test wants.
struct Hostile {
    reader: StreamReader,
    writer: StreamWriter,
}

impl Hostile {
    async fn dial(to: &Address) -> Self {
        let (security, limit) = (ClientSecurity::default(), Duration::from_secs(60));
        let stream = SecuredStream::connect(to, &security, LABEL, limit);
        let (reader, writer) = stream.await.unwrap().split();
        Self { reader, writer }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.writer.send(bytes, MESSAGE_BYTES).await.unwrap();
    }

    async fn hear(&mut self) -> Message {
        Message::decode(&self.reader.recv(MESSAGE_BYTES).await.unwrap()).unwrap()
    }

    async fn is_refused(&mut self) -> String {
        let heard = self.hear().await;
        let Message::Refused { reason, .. } = heard else { panic!("{heard:?}") };
        reason
    }

    /// Makes a session as an honest end does, up to the channel.
    async fn connect(&mut self, mode: Mode) -> Channel {
        let providers = Providers::new(&ProviderSet::default());
        let offers = providers.for_source(Ends { local: None, peer: None });
        let hello = Hello { mode, ..hello(&offers) };
        self.say(&Message::Hello(hello).encode()).await;
        let Message::Welcome(welcome) = self.hear().await else { panic!("no welcome") };
        let card = welcome.end.read(welcome.path.path_mtu).unwrap();
        let context = offers.context(&welcome.path).unwrap();
        let shape = ChannelShape::new(card.blocks, card.payload_bytes).with_mode(mode);
        let resources = Resources::acquire(context.clone(), shape).unwrap();
        self.say(&Message::Connect(EndCard::of(&resources.card())).encode()).await;
        assert_eq!(self.hear().await, Message::Ready {});
        Channel::connect(resources, &card, RtsAttr::default()).unwrap()
    }
}

fn hello(offers: &catchment_providers::Offers) -> Hello {
    Hello {
        version: VERSION,
        software: "a test".to_owned(),
        host: Host::read().unwrap(),
        service: "echo".to_owned(),
        providers: offers.list(),
        missing: Vec::new(),
        window_bytes: 4096,
        streams: 4,
        insecure: false,
        mode: Mode::default(),
    }
}

/// A channel whose completions are taken on a thread of its own: the other end may say that it sleeps.
struct Driven {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Driven {
    fn new(mut channel: Channel) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            // It fails when the other end ends the session.
            while !over.load(Ordering::Relaxed) && channel.progress().is_ok() {
                thread::yield_now();
            }
        });
        Self { is_over, thread }
    }

    async fn beside<T>(self, other: impl Future<Output = T>) -> T {
        let out = other.await;
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        out
    }
}

fn send(channel: &mut Channel, bytes: &[u8]) {
    let claim = channel.claim(0, bytes.len() as u32).unwrap();
    channel.memory(&claim).write_at(0, bytes).unwrap();
    channel.commit(claim, 0).unwrap();
}

#[test]
fn frames_that_break_the_protocol_end_their_own_session_with_the_reason() {
    Mode::ALL.into_iter().for_each(break_the_protocol);
}

fn break_the_protocol(mode: Mode) {
    let tunnel = Tunnel::start_in(mode, "shm", &echo());
    let mut kept = tunnel.client();
    let to = tunnel.service.as_ref().unwrap().local().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let too_much =
        [&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]].concat();
    for (bytes, reason) in [
        (&[9; 40][..], "frame kind 9 is unknown"),
        (&[4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9], "the message has 12 more"),
        (&[5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], "stream 1, which is not open"),
        (&[1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0], "4 streams are agreed on"),
        (&too_much, "credit of 9 bytes for stream 0, of which 0 are outstanding"),
    ] {
        runtime.block_on(async {
            let mut hostile = Hostile::dial(&to).await;
            let mut channel = hostile.connect(mode).await;
            send(&mut channel, bytes);
            let told = Driven::new(channel).beside(hostile.is_refused()).await;
            assert!(told.contains(reason), "{told}");
        });
    }
    kept.write_all(b"undisturbed").unwrap();
    let mut back = [0; 11];
    kept.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"undisturbed");
}

#[test]
fn messages_that_break_the_protocol_are_refused_with_the_reason() {
    let tunnel = Tunnel::start("shm", &echo());
    let to = tunnel.service.as_ref().unwrap().local().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let offers =
        Providers::new(&ProviderSet::default()).for_source(Ends { local: None, peer: None });
    let with = |change: &dyn Fn(&mut Hello)| {
        let mut changed = hello(&offers);
        change(&mut changed);
        Message::Hello(changed).encode()
    };
    let named = |mode: &str| {
        let text = String::from_utf8(with(&|hello| hello.mode = Mode::Send)).unwrap();
        text.replace("\"send\"", mode).into_bytes()
    };
    for (bytes, reason) in [
        (b"GET / HTTP/1.1".to_vec(), "cannot be read"),
        (Message::Ready {}.encode(), "at the wrong point"),
        (with(&|hello| hello.version = 7), "version 7"),
        (with(&|hello| hello.service = "a b".to_owned()), "name of a service"),
        (with(&|hello| hello.window_bytes = 1), "window_bytes is out of range: 1"),
        (with(&|hello| hello.streams = 1 << 20), "number of streams"),
        (with(&|hello| hello.providers.clear()), "no path"),
        (
            named("\"dma\""),
            "mode \"dma\": no such mode: this program knows write-imm, write and send",
        ),
        (named("7"), "cannot be read"),
    ] {
        runtime.block_on(async {
            let mut hostile = Hostile::dial(&to).await;
            hostile.say(&bytes).await;
            let told = hostile.is_refused().await;
            assert!(told.contains(reason), "{told}");
        });
    }
}
