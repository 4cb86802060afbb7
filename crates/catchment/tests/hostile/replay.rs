//! A Hello that somebody recorded, and attempts that a source gave up: no live session ends for them.
use super::bad::{Bad, framed, header, json};
use super::world::{PATIENCE, World, eventually};
use catchment::session::message::Message;
use catchment::session::refusal::{Refusal, RefusalCode};
use catchment::source::{DeviceSpec, Source};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What a source says to its collector, as one who reads along on the way records it.
struct Tap {
    at: String,
    said: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Tap {
    /// Passes one connection on to `to`.
    fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let record = said.clone();
        let thread = std::thread::spawn(move || {
            let (source, _) = listener.accept().unwrap();
            let collector = TcpStream::connect(to).unwrap();
            let (mut answers, mut back) =
                (collector.try_clone().unwrap(), source.try_clone().unwrap());
            let answering = std::thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            pass_on(source, collector, &record);
            answering.join().unwrap();
        });
        Self { at, said, thread }
    }

    /// The messages that the source has sent.
    fn messages(&self) -> Vec<String> {
        let mut rest = &self.said.lock().unwrap()[..];
        let mut messages = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let Some((text, after)) = after.split_at_checked(u32::from_be_bytes(*length) as usize)
            else {
                break;
            };
            messages.push(String::from_utf8(text.to_vec()).unwrap());
            rest = after;
        }
        messages
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, record: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        record.lock().unwrap().extend(&chunk[..count]);
        let _ = to.write_all(&chunk[..count]);
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Says all this over a new connection, and what comes back until the collector closes it.
fn replay(world: &World, texts: &[String]) -> String {
    let bytes: Vec<u8> = texts.iter().flat_map(|text| framed(text)).collect();
    world.raw(&bytes)
}

#[test]
fn who_replays_a_recorded_session_ends_no_live_one() {
    let world = World::start(|c| c);
    let tap = Tap::start(world.at());
    let spec = DeviceSpec::new("heard").frame_bytes(100);
    let source = Source::builder(&tap.at).device(spec).patience(PATIENCE).connect().unwrap();
    let mut device = source.device("heard").unwrap();
    let mut sent = 0;
    let mut send = |count: usize| {
        for _ in 0..count {
            device.frame(100).unwrap().send_bytes(&[7; 100]).unwrap();
        }
        sent += count;
        eventually("the frames of the live source", || world.frames("heard").len() == sent);
    };
    send(5);
    let recorded = tap.messages();
    let hello = recorded[0].clone();
    assert!(hello.contains(r#""type":"hello""#), "{hello}");
    let later = hello.replace(r#""attempt":1,"#, r#""attempt":9007199254740991,"#);
    assert_ne!(later, hello);
    let forged: Vec<String> = [later].into_iter().chain(recorded[1..].iter().cloned()).collect();
    for (case, texts) in [
        ("its Hello", vec![hello]),
        ("all that it said", recorded),
        ("all of it, as a later attempt", forged),
    ] {
        let answer = replay(&world, &texts);
        assert!(!answer.contains("welcome"), "{case}: {answer}");
        send(5);
    }
    drop(device);
    let recorded = tap.messages();
    let last = source.close(PATIENCE).unwrap();
    assert_eq!((last.reconnects, last.totals.frames_sent), (0, sent as u64));
    tap.thread.join().unwrap();
    let answer = replay(&world, &recorded);
    assert!(!answer.contains("welcome"), "after the end of the source: {answer}");
    let counters = world.collector.metrics().snapshot().devices;
    let heard = counters.iter().find(|device| device.name == "heard").unwrap().counters;
    assert_eq!((heard.frames_received, heard.frames_lost), (sent as u64, 0));
    world.finish();
}

/// A collector that stood still finds them in its queue, with the live attempt among them.
#[test]
fn attempts_that_a_source_gave_up_do_not_count_as_its_newer_session() {
    let world = World::start(|c| c);
    let mut bad = Bad::new(&world);
    bad.attempt = 5;
    let identity = bad.identity.clone();
    let mut live = bad.ringed("mine", 8, 0);
    let gave_up = Refusal::new(RefusalCode::Timeout, "no welcome", "connect again");
    let gave_up = json(&Message::Refused(gave_up));
    for attempt in [1, 4, 5, 6, 7] {
        let mut stale = Bad::new(&world);
        stale.identity = identity.clone();
        stale.attempt = attempt;
        let hello = json(&Message::Hello(stale.hello(&["mine"], 8)));
        drop(stale);
        let answer = replay(&world, &[hello, gave_up.clone()]);
        assert!(!answer.contains("welcome"), "attempt {attempt}: {answer}");
        live.assert_alive();
    }
    // One that proved itself before it was given up is older all the same.
    let mut stale = Bad::new(&world);
    (stale.identity, stale.attempt) = (identity.clone(), 4);
    let refusal = stale.welcome(&["mine"], 8).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Superseded, "{refusal}");
    assert!(refusal.retry_after_ms.is_some(), "{refusal}");
    live.commit(0, 1, &header(0, 10));
    eventually("a frame of the live session", || world.frames("mine").len() == 1);
    live.assert_alive();
    // The next attempt of the same process takes over.
    let mut next = Bad::new(&world);
    (next.identity, next.attempt) = (identity, 6);
    assert_eq!(next.welcome(&["mine"], 8).unwrap().streams[0].next_packet, Some(1));
    assert_eq!(live.bad.refusal().code, RefusalCode::Superseded);
    world.finish_after((stale, live, next), "a source that connects again");
}
