//! Sessions over real sockets, good and bad peers.
use super::*;
use crate::collector_side::{CollectorEvent, CollectorSide, CollectorSideConfig};
use crate::machine::{Ended, Input, Side};
use crate::message::{Message, MessageKind, Ping};
use crate::refusal::{Refusal, RefusalCode};
use crate::samples;
use crate::source_side::{SourceEvent, SourceSide, SourceSideConfig};
use crate::wire::{HELLO_BYTES_MAX, encode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(super) const LIMIT: Duration = Duration::from_secs(10);

pub(super) type Events = Arc<Mutex<Vec<Rejected>>>;

pub(super) async fn listen(address: &str, config: ListenerConfig) -> (Listener, Events) {
    listen_with(address, ServerSecurity::default(), config).await
}

pub(super) async fn listen_with(
    address: &str,
    security: ServerSecurity,
    config: ListenerConfig,
) -> (Listener, Events) {
    let events = Events::default();
    let sink = events.clone();
    let on_rejected: OnRejected = Arc::new(move |event| sink.lock().unwrap().push(event.clone()));
    let address = address.parse().unwrap();
    (Listener::bind(&address, security, config, on_rejected).await.unwrap(), events)
}

/// An unprotected listener that nobody watches.
async fn bind(address: &Address) -> Result<Listener, BindError> {
    let (security, config) = (ServerSecurity::default(), ListenerConfig::default());
    Listener::bind(address, security, config, Arc::new(|_: &Rejected| {})).await
}

pub(super) async fn connect(address: &Address) -> Result<Connection, ConnectError> {
    Connection::connect(address, &ClientSecurity::default(), LIMIT).await
}

pub(super) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A collector that takes the session of [`samples`] as an engine would.
struct Serving {
    /// Until Ready.
    slot: Option<Slot>,
}

impl Handler for Serving {
    type Side = CollectorSide;
    type Wake = Refusal;

    async fn on_event(
        &mut self,
        side: &mut CollectorSide,
        event: CollectorEvent,
    ) -> Result<(), Refusal> {
        match event {
            CollectorEvent::Hello(_) => {
                side.challenge(Instant::now(), samples::NONCE).unwrap();
                self.slot.as_ref().unwrap().peer_turn(Instant::now());
            }
            CollectorEvent::Proven => side.welcome(Instant::now(), samples::welcome()).unwrap(),
            CollectorEvent::Connect(_) => {
                side.ready(Instant::now()).unwrap();
                self.slot = None;
            }
            CollectorEvent::Stats(_) => {}
            CollectorEvent::Goodbye(_) => {
                side.goodbye_ack(samples::goodbye_ack().delivered).unwrap();
            }
        }
        Ok(())
    }

    async fn woken(&mut self) -> Refusal {
        match &self.slot {
            Some(slot) => slot.evicted().await,
            None => std::future::pending().await,
        }
    }

    fn on_wake(&mut self, side: &mut CollectorSide, evicted: Refusal) {
        side.refuse(evicted);
    }
}

/// Takes one session from Hello to its end.
pub(super) async fn serve(accepted: Accepted) -> Ended {
    let Accepted { mut connection, hello, slot } = accepted;
    let mut side = CollectorSide::new(Instant::now(), CollectorSideConfig::default());
    side.handle(Instant::now(), Input::Message(Message::Hello(hello)));
    let ended = drive(&mut side, &mut connection, &mut Serving { slot: Some(slot) }).await;
    connection.close().await;
    ended
}

/// A source that says Goodbye as soon as it may send.
struct Attending;

impl Handler for Attending {
    type Side = SourceSide;
    type Wake = ();

    async fn on_event(&mut self, side: &mut SourceSide, event: SourceEvent) -> Result<(), Refusal> {
        match event {
            SourceEvent::Welcomed(_) => {
                let connect = samples::connect();
                side.connect(Instant::now(), connect.endpoint, connect.streams).unwrap();
            }
            SourceEvent::Ready => {
                side.stats(1, &samples::stats().streams).unwrap();
                side.goodbye(samples::goodbye().streams).unwrap();
            }
            SourceEvent::Sink(_) | SourceEvent::Delivered(_) => {}
        }
        Ok(())
    }

    async fn woken(&mut self) {
        std::future::pending().await
    }

    fn on_wake(&mut self, _: &mut SourceSide, (): ()) {}
}

/// Runs a source from Hello to Goodbye.
pub(super) async fn attend(mut connection: Connection) -> Ended {
    let config = SourceSideConfig::new(samples::known(), samples::identity());
    let mut side = SourceSide::new(Instant::now(), config, samples::hello());
    drive(&mut side, &mut connection, &mut Attending).await
}

async fn whole_session(address: &str) {
    let (mut listener, events) = listen(address, ListenerConfig::default()).await;
    let collector_address = listener.local().clone();
    let collector = tokio::spawn(async move { serve(listener.accept().await.unwrap()).await });
    let connection = connect(&collector_address).await.unwrap();
    assert_eq!(attend(connection).await, Ended::Finished);
    assert_eq!(collector.await.unwrap(), Ended::Finished);
    assert!(events.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_session_runs_over_tcp() {
    whole_session("127.0.0.1:0").await;
}

#[tokio::test]
async fn a_session_runs_over_a_unix_socket_of_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.sock");
    let address = format!("unix:{}", path.display());
    whole_session(&address).await;
    assert!(!path.exists(), "the socket goes with its listener");

    // One that a dead process left behind is replaced, a live one and other files are not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (listener, _) = listen(&address, ListenerConfig::default()).await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = bind(&Address::Unix(path)).await;
    assert!(matches!(again, Err(BindError::InUse(_))));
    let file = dir.path().join("precious");
    std::fs::write(&file, "data").unwrap();
    let over = bind(&Address::Unix(file.clone())).await;
    assert!(matches!(over, Err(BindError::Bind { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"data");
    drop(listener);
}

#[tokio::test]
async fn an_address_for_others_needs_protection() {
    let error = bind(&"0.0.0.0:0".parse().unwrap()).await;
    assert!(matches!(error, Err(BindError::Protection(_))));
    let error = connect(&"192.0.2.1:9".parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Protection(_)), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn halves_work_from_two_tasks_and_a_cancelled_receive_loses_nothing() {
    let (mut listener, _) = listen("127.0.0.1:0", ListenerConfig::default()).await;
    let mut connection = connect(listener.local()).await.unwrap();
    connection.send(&Message::Hello(samples::hello())).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    let (mut reader, mut writer) = accepted.connection.split();
    let echo = tokio::spawn(async move {
        for _ in 0..100 {
            let message = reader.recv().await.unwrap();
            writer.send(&message).await.unwrap();
        }
    });
    let (mut reader, mut writer) = connection.split();
    let sender = tokio::spawn(async move {
        for seq in 0..100 {
            let ping = Message::Ping(Ping { epoch: 7, seq });
            writer.send(&ping).await.unwrap();
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
        writer
    });
    let mut seq = 0;
    while seq < 100 {
        let deadline = Instant::now() + Duration::from_micros(200);
        if let Some(message) = reader.recv_until(Some(deadline)).await.unwrap() {
            assert_eq!(message, Message::Ping(Ping { epoch: 7, seq }));
            seq += 1;
        }
    }
    echo.await.unwrap();
    sender.await.unwrap();
}

/// Sends `bytes` as a stranger; what the collector answers, and what it reports.
async fn stranger(bytes: &[u8], close: bool) -> (Vec<u8>, Rejected) {
    let config =
        ListenerConfig { handshake: Duration::from_millis(300), ..ListenerConfig::default() };
    let (listener, events) = listen("127.0.0.1:0", config).await;
    let mut stream = TcpStream::connect(listener.local().to_string()).await.unwrap();
    let _ = stream.write_all(bytes).await;
    if close {
        stream.shutdown().await.unwrap();
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    eventually("a rejection", || !events.lock().unwrap().is_empty()).await;
    let event = events.lock().unwrap().remove(0);
    (answer, event)
}

fn refusal_in(answer: &[u8]) -> Refusal {
    let message = crate::wire::Decoder::new(HELLO_BYTES_MAX).decode(&mut &answer[..]).unwrap();
    let Some(Message::Refused(refusal)) = message else { panic!("{message:?}") };
    refusal
}

#[tokio::test]
async fn strangers_are_told_why_and_reported() {
    let mut ping = Vec::new();
    encode(&Message::Ping(Ping { epoch: 1, seq: 1 }), &mut ping).unwrap();
    let newer = samples::golden()[0].1.replace("\"min\":3,\"max\":3", "\"min\":5,\"max\":6");
    let mut newer_bytes = u32::try_from(newer.len()).unwrap().to_be_bytes().to_vec();
    newer_bytes.extend_from_slice(newer.as_bytes());
    use RefusalCode::{BadMessage, ProtocolVersion, Timeout, UnexpectedMessage};
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let cases: [(&[u8], bool, &str, &str, RefusalCode); 7] = [
        (b"\xff\xff\xff\xff", false, "bad_message", "4294967295 bytes", BadMessage),
        (b"\0\0\0\x05hello", false, "bad_message", "not a JSON object", BadMessage),
        (http, false, "bad_message", "HTTP", BadMessage),
        (b"\0\0\x01\0{\"type\"", true, "bad_message", "ended after 11 of 260", BadMessage),
        (&ping, false, "not_hello", "ping, not hello", UnexpectedMessage),
        (&newer_bytes, false, "bad_message", "protocols 5 to 6", ProtocolVersion),
        (b"\0\0", false, "timeout", "no Hello within 300ms", Timeout),
    ];
    for (bytes, close, label, words, code) in cases {
        let (answer, event) = stranger(bytes, close).await;
        assert_eq!(event.reason.label(), label, "{event:?}");
        assert!(event.reason.to_string().contains(words), "{event:?}");
        let refusal = refusal_in(&answer);
        assert_eq!(refusal.code, code);
        assert!(refusal.reason.contains(words), "{refusal}");
    }
    let (answer, event) = stranger(b"", true).await;
    assert_eq!(event.reason, RejectReason::Closed);
    assert!(answer.is_empty());
}

#[tokio::test]
async fn a_long_hello_is_taken_while_there_is_room_for_it() {
    let config = ListenerConfig { long_hellos_max: 1, ..ListenerConfig::default() };
    let (mut listener, events) = listen("127.0.0.1:0", config).await;
    let mut hello = samples::hello();
    let device = |i: usize| crate::message::Device {
        name: format!("cam{i}").parse().unwrap(),
        ..samples::hello().devices[0].clone()
    };
    hello.devices = (0..60_000).map(device).collect();
    let message = Message::Hello(hello);
    // The only place for long ones is held by a peer that does not go on.
    let mut hog = TcpStream::connect(listener.local().to_string()).await.unwrap();
    hog.write_all(&1_000_000_u32.to_be_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut second = connect(listener.local()).await.unwrap();
    // The refusal comes while the Hello is still being sent.
    second.send(&message).await.unwrap();
    let Ok(Message::Refused(refused)) = second.recv().await else { panic!("not refused") };
    assert_eq!(refused.code, RefusalCode::Busy);
    assert_eq!(events.lock().unwrap()[0].reason.label(), "busy");
    drop(hog);
    eventually("the hog is gone", || events.lock().unwrap().len() == 2).await;
    let mut third = connect(listener.local()).await.unwrap();
    third.send(&message).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    assert_eq!(accepted.hello.devices.len(), 60_000);
    assert_eq!(message.kind(), MessageKind::Hello);
}

#[tokio::test]
async fn the_last_words_of_a_peer_are_read_also_when_a_send_fails_first() {
    let (mut listener, _) = listen("127.0.0.1:0", ListenerConfig::default()).await;
    let mut connection = connect(listener.local()).await.unwrap();
    connection.send(&Message::Hello(samples::hello())).await.unwrap();
    let mut accepted = listener.accept().await.unwrap();
    let ack = Message::GoodbyeAck(samples::goodbye_ack());
    accepted.connection.send(&ack).await.unwrap();
    drop(accepted);
    let ping = Message::Ping(Ping { epoch: 7, seq: 0 });
    // The first sends go into the void, later ones find the connection reset.
    for _ in 0..50 {
        connection.send(&ping).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(connection.recv().await.unwrap(), ack);
    assert!(connection.recv().await.is_err());
    assert!(connection.send(&ping).await.is_err());
}
