//! The two state machines against peers that do one thing wrong.
use crate::collector_side::{CollectorEvent, CollectorSide, CollectorSideConfig, JUMP_MAX};
use crate::identity::Hex;
use crate::machine::{Ended, Input, Output, Retry, Side};
use crate::message::*;
use crate::refusal::{Refusal, RefusalCode};
use crate::samples;
use crate::source_side::{SourceSide, SourceSideConfig, first_packet};
use crate::wire::encode;
use std::time::{Duration, Instant};

/// The messages of a side, its events and end, and when it wants to be called.
fn drain<S: Side>(side: &mut S) -> (Vec<Message>, Vec<Output<S::Event>>, Option<Instant>) {
    let (mut messages, mut events) = (Vec::new(), Vec::new());
    loop {
        match side.poll() {
            Output::Transmit(message) => messages.push(message),
            event @ (Output::Event(_) | Output::Ended(_)) => events.push(event),
            Output::Timeout(at) => return (messages, events, at),
        }
    }
}

/// A source that has said Hello.
fn source(now: Instant) -> SourceSide {
    let mut side = SourceSide::new(now, config(), samples::hello());
    drain(&mut side);
    side
}

fn config() -> SourceSideConfig {
    SourceSideConfig::new(samples::known(), samples::identity())
}

/// A source that has proven who it is.
fn proven(now: Instant, config: SourceSideConfig) -> SourceSide {
    let mut side = SourceSide::new(now, config, samples::hello());
    drain(&mut side);
    let challenge = Challenge { nonce: samples::NONCE };
    side.handle(now, Input::Message(Message::Challenge(challenge)));
    assert_eq!(drain(&mut side).0, [Message::Proof(samples::proof())]);
    side
}

/// A collector that has challenged [`samples::hello`].
fn challenged(now: Instant) -> CollectorSide {
    let mut side = CollectorSide::new(now, CollectorSideConfig::default());
    side.handle(now, Input::Message(Message::Hello(samples::hello())));
    drain(&mut side);
    side.challenge(now, samples::NONCE).unwrap();
    drain(&mut side);
    side
}

/// A collector that has welcomed [`samples::hello`].
fn welcomed(now: Instant) -> CollectorSide {
    let mut side = challenged(now);
    side.handle(now, Input::Message(Message::Proof(samples::proof())));
    assert_eq!(drain(&mut side).1, [Output::Event(CollectorEvent::Proven)]);
    side.welcome(now, samples::welcome()).unwrap();
    drain(&mut side);
    side
}

fn streaming_collector(now: Instant) -> CollectorSide {
    let mut side = welcomed(now);
    side.handle(now, Input::Message(Message::Connect(samples::connect())));
    drain(&mut side);
    side.ready(now).unwrap();
    drain(&mut side);
    side
}

fn streaming_source(now: Instant, ping_origin: Option<Instant>) -> SourceSide {
    let mut side = proven(now, SourceSideConfig { ping_origin, ..config() });
    side.handle(now, Input::Message(Message::Welcome(samples::welcome())));
    drain(&mut side);
    let connect = samples::connect();
    side.connect(now, connect.endpoint, connect.streams).unwrap();
    drain(&mut side);
    side.handle(now, Input::Message(Message::Ready(Ready { epoch: 7 })));
    drain(&mut side);
    side
}

/// Returns what `side` sends its peer when it ends because of `message`.
fn refusal_of(mut side: impl Side, message: Message) -> Refusal {
    side.handle(Instant::now(), Input::Message(message));
    let (messages, events, timeout) = drain(&mut side);
    let told = match messages.as_slice() {
        [Message::Refused(refusal)] => refusal.clone(),
        [Message::Revoke(revoke)] => revoke.clone().into_refusal(),
        other => panic!("not a refusal: {other:?}"),
    };
    let [Output::Ended(ended)] = &events[..] else { panic!("not the end and nothing else") };
    assert_eq!(*ended, Ended::Misbehaved(told.clone()));
    assert_eq!(timeout, None);
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
        let refusal = refusal_of(side, message);
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
            let refusal = refusal_of(streaming_collector(now), message.clone());
            assert_eq!(refusal.code, RefusalCode::UnexpectedMessage, "{kind}");
        }
        if !matches!(kind, Pong | Revoke | SinkReport) {
            let refusal = refusal_of(streaming_source(now, None), message);
            assert_eq!(refusal.code, RefusalCode::UnexpectedMessage, "{kind}");
        }
    }
}

#[test]
fn a_pong_without_ping_ends_the_session() {
    let now = Instant::now();
    let pong = Message::Pong(Pong { epoch: 7, seq: 0 });
    assert_eq!(refusal_of(streaming_source(now, None), pong).code, RefusalCode::UnexpectedMessage);
}

#[test]
fn another_epoch_is_refused_with_both_numbers() {
    let now = Instant::now();
    let connect = Connect { epoch: 6, ..samples::connect() };
    let refusal = refusal_of(welcomed(now), Message::Connect(connect));
    assert_eq!(refusal.code, RefusalCode::WrongEpoch);
    assert!(refusal.reason.contains("epoch 6, this session is 7"), "{refusal}");
    let ping = Message::Ping(Ping { epoch: 8, seq: 0 });
    let refusal = refusal_of(streaming_collector(now), ping);
    assert_eq!(refusal.code, RefusalCode::WrongEpoch);
    let ready = Message::Ready(Ready { epoch: 8 });
    assert_eq!(refusal_of(streaming_source(now, None), ready).code, RefusalCode::WrongEpoch);
}

#[test]
fn a_queue_pair_must_be_at_the_gid_that_was_offered() {
    let now = Instant::now();
    let mut connect = samples::connect();
    connect.endpoint = samples::welcome().endpoint;
    let refusal = refusal_of(welcomed(now), Message::Connect(connect));
    assert_eq!(refusal.code, RefusalCode::BadMessage);
    let (seen, offered) = (samples::welcome().endpoint.gid, samples::connect().endpoint.gid);
    let words = format!("Connect names GID {seen}, Hello offered shm at GID {offered}");
    assert!(refusal.reason.contains(&words), "{refusal}");
}

#[test]
fn streams_must_be_those_of_the_welcome() {
    let now = Instant::now();
    let start = |stream, first_packet| StreamStart { stream, first_packet };
    for (streams, code, words) in [
        (vec![start(0, 0)], RefusalCode::UnknownStream, "stream 1 is missing"),
        (
            vec![start(0, 0), start(1, 240), start(2, 0)],
            RefusalCode::UnknownStream,
            "stream 2 is not of this session",
        ),
        (vec![start(0, 0), start(0, 0)], RefusalCode::UnknownStream, "stream 0 twice"),
        (
            vec![start(0, 0), start(1, 239)],
            RefusalCode::BadResume,
            "stream 1 goes back from packet 240 to 239",
        ),
        (
            vec![start(0, JUMP_MAX + 1), start(1, 240)],
            RefusalCode::BadResume,
            "stream 0 jumps from packet 0 to 1099511627777",
        ),
        (
            vec![start(0, 0), start(1, 240 + JUMP_MAX + 1)],
            RefusalCode::BadResume,
            "stream 1 jumps from packet 240 to 1099511628017",
        ),
    ] {
        let connect = Connect { streams, ..samples::connect() };
        let refusal = refusal_of(welcomed(now), Message::Connect(connect));
        assert_eq!(refusal.code, code);
        assert!(refusal.reason.contains(words), "{refusal}");
    }
    let mut stats = samples::stats();
    stats.streams[0].stream = 9;
    let refusal = refusal_of(streaming_collector(now), Message::SourceStats(stats));
    assert_eq!(refusal.code, RefusalCode::UnknownStream);
    let mut stats = samples::stats();
    stats.streams.push(stats.streams[0]);
    let refusal = refusal_of(streaming_collector(now), Message::SourceStats(stats));
    assert!(refusal.reason.contains("stream 1 is twice"), "{refusal}");
    let mut goodbye = samples::goodbye();
    goodbye.streams[1].end_packet = 244;
    let refusal = refusal_of(streaming_collector(now), Message::Goodbye(goodbye));
    assert_eq!(refusal.code, RefusalCode::BadResume);
}

#[test]
fn a_hello_that_names_something_twice_is_refused() {
    let now = Instant::now();
    let fresh = || CollectorSide::new(now, CollectorSideConfig::default());
    let mut hello = samples::hello();
    hello.devices[1].name = hello.devices[0].name.clone();
    let refusal = refusal_of(fresh(), Message::Hello(hello));
    assert_eq!(refusal.code, RefusalCode::DuplicateDevice);
    assert!(refusal.reason.contains("device cam0 twice"), "{refusal}");
    let mut hello = samples::hello();
    hello.providers.push(hello.providers[0].clone());
    assert_eq!(refusal_of(fresh(), Message::Hello(hello)).code, RefusalCode::BadMessage);
}

#[test]
fn a_hello_without_its_proof_gets_nothing() {
    let now = Instant::now();
    let wrong = Proof { signature: Hex([7; 64]) };
    let refusal = refusal_of(challenged(now), Message::Proof(wrong));
    assert_eq!(refusal.code, RefusalCode::NotAllowed);
    let connect = Message::Connect(samples::connect());
    assert_eq!(refusal_of(challenged(now), connect).code, RefusalCode::UnexpectedMessage);
    assert!(challenged(now).welcome(now, samples::welcome()).is_err());
    // A recorded proof answers one nonce only.
    let mut side = CollectorSide::new(now, CollectorSideConfig::default());
    side.handle(now, Input::Message(Message::Hello(samples::hello())));
    drain(&mut side);
    side.challenge(now, Hex([1; 16])).unwrap();
    drain(&mut side);
    let refusal = refusal_of(side, Message::Proof(samples::proof()));
    assert_eq!(refusal.code, RefusalCode::NotAllowed);
}

#[test]
fn a_source_checks_what_it_is_granted() {
    let now = Instant::now();
    let fresh = || proven(now, config());
    type Change = fn(&mut Welcome);
    let changes: [(&str, Change); 10] = [
        ("version 4", |w| w.protocol = 4),
        ("provider efa", |w| w.path.source = "efa".to_owned()),
        ("not offered", |w| w.path.source_gid.0[0] ^= 1),
        ("do not understand each other", |w| w.path.collector = "roce".to_owned()),
        ("do not understand each other", |w| w.path.collector = "efa".to_owned()),
        ("path MTU 1024, offered was none", |w| w.path.path_mtu = Some(1024)),
        ("path MTU none, offered was 4096", |w| {
            let offer = &samples::hello().providers[1];
            w.path.source.clone_from(&offer.name);
            w.path.source_gid = offer.gid;
            w.path.collector = "ibverbs".to_owned();
        }),
        ("devices of Hello", |w| w.streams.truncate(1)),
        ("devices of Hello", |w| w.streams[1].device = "x".parse().unwrap()),
        ("stream 0 twice", |w| w.streams[1].stream = 0),
    ];
    for (words, change) in changes {
        let mut welcome = samples::welcome();
        change(&mut welcome);
        let refusal = refusal_of(fresh(), Message::Welcome(welcome));
        assert!(refusal.reason.contains(words), "{refusal}");
    }
}

#[test]
fn refusals_end_the_source_and_say_whether_to_try_again() {
    let now = Instant::now();
    for code in RefusalCode::known() {
        let mut side = source(now);
        let refusal = Refusal::new(code.clone(), "because", "do this");
        side.handle(now, Input::Message(Message::Refused(refusal.clone())));
        let (messages, events, _) = drain(&mut side);
        assert!(messages.is_empty());
        let ended = Ended::Refused(refusal);
        let expected = match code.retry_after_ms() {
            Some(ms) => Retry::After(Duration::from_millis(ms.into())),
            None => Retry::Never,
        };
        assert_eq!(ended.retry(), expected);
        assert_eq!(events, [Output::Ended(ended)]);
    }
}

#[test]
fn a_silent_peer_ends_the_handshake_on_both_sides() {
    let now = Instant::now();
    let late = now + Duration::from_secs(5);
    let mut collector = CollectorSide::new(now, CollectorSideConfig::default());
    assert_eq!(drain(&mut collector).2, Some(late));
    collector.handle(now + Duration::from_secs(4), Input::Timeout);
    assert_eq!(drain(&mut collector).1, []);
    collector.handle(late, Input::Timeout);
    let (messages, events, _) = drain(&mut collector);
    assert!(matches!(&messages[..], [Message::Refused(r)] if r.code == RefusalCode::Timeout));
    let waiting = |events: &[Output<_>], kind| matches!(events, [Output::Ended(Ended::HandshakeTimeout { waiting_for, .. })] if *waiting_for == kind);
    assert!(waiting(&events, MessageKind::Hello));
    let mut collector = welcomed(now);
    collector.handle(late, Input::Timeout);
    assert!(waiting(&drain(&mut collector).1, MessageKind::Connect));
    let mut collector = challenged(now);
    collector.handle(late, Input::Timeout);
    assert!(waiting(&drain(&mut collector).1, MessageKind::Proof));
    let mut source = SourceSide::new(now, config(), samples::hello());
    assert_eq!(drain(&mut source).2, Some(late));
    source.handle(late, Input::Timeout);
    let (_, events, _) = drain(&mut source);
    let [Output::Ended(ended)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(ended.retry(), Retry::After(Duration::ZERO));
}

#[test]
fn sources_that_share_an_origin_ping_together_and_not_late() {
    let origin = Instant::now();
    let period = Duration::from_millis(samples::welcome().lease_ms.into()) / 3;
    let step = period / 8;
    for late in [Duration::ZERO, step / 3, step, 5 * step + Duration::from_micros(1)] {
        let ready = origin + 20 * period + late;
        let mut side = streaming_source(ready, Some(origin));
        let mut now = ready;
        for _ in 0..2 {
            let at = drain(&mut side).2.unwrap();
            assert!(at <= now + period && at > now + period - step, "{late:?}");
            assert_eq!((at - origin).as_nanos() % step.as_nanos(), 0, "{late:?}");
            // Timers are late.
            now = at + Duration::from_micros(300);
            side.handle(now, Input::Timeout);
            let (messages, _, _) = drain(&mut side);
            assert!(matches!(messages.as_slice(), [Message::Ping(_)]), "{messages:?}");
        }
    }
}

#[test]
fn pings_keep_the_lease_and_silence_ends_it_on_both_sides() {
    let start = Instant::now();
    let mut source = streaming_source(start, None);
    let mut collector = streaming_collector(start);
    let mut now = start;
    for _ in 0..10 {
        now = drain(&mut source).2.unwrap();
        source.handle(now, Input::Timeout);
        let (messages, events, _) = drain(&mut source);
        assert!(events.is_empty());
        for message in messages {
            collector.handle(now, Input::Message(message));
        }
        let (messages, events, _) = drain(&mut collector);
        assert!(events.is_empty());
        now += Duration::from_millis(3);
        for message in messages {
            source.handle(now, Input::Message(message));
        }
        assert_eq!(source.rtt(), Some(Duration::from_millis(3)));
    }
    assert!(now - start > Duration::from_secs(9), "three leases passed");
    let heard = now - Duration::from_millis(3);
    let until = drain(&mut collector).2.unwrap();
    assert_eq!(until, heard + Duration::from_secs(3));
    collector.handle(until, Input::Timeout);
    let (messages, events, _) = drain(&mut collector);
    assert!(matches!(&messages[..], [Message::Revoke(_)]));
    assert!(matches!(&events[..], [Output::Ended(Ended::LeaseExpired { .. })]));
    // The source pings on without an answer until its lease ends too.
    let mut events = Vec::new();
    while events.is_empty() {
        let at = drain(&mut source).2.unwrap();
        assert!(at <= now + Duration::from_secs(3));
        source.handle(at, Input::Timeout);
        events = drain(&mut source).1;
    }
    assert!(matches!(&events[..], [Output::Ended(Ended::LeaseExpired { .. })]));
}

#[test]
fn a_command_in_the_wrong_state_is_an_error_of_ours_and_after_the_end_nothing() {
    let now = Instant::now();
    let mut source = source(now);
    let misuse = source.goodbye(vec![]).unwrap_err();
    assert_eq!(misuse.to_string(), "goodbye called while the source waits for Challenge");
    source.handle(now, Input::Disconnected);
    drain(&mut source);
    source.goodbye(vec![]).unwrap();
    assert_eq!(drain(&mut source), (vec![], vec![], None));
    let mut collector = streaming_collector(now);
    assert!(collector.ready(now).is_err());
    assert!(collector.goodbye_ack(vec![]).is_err());
}

#[test]
fn many_streams_are_counted_in_several_messages() {
    let now = Instant::now();
    let mut source = streaming_source(now, None);
    let stats = vec![StreamStats::default(); 600];
    source.stats(1, &stats).unwrap();
    let (messages, _, _) = drain(&mut source);
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
