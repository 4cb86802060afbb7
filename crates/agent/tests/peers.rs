//! Sessions between the agents of several hosts: real processes, real sockets.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod raw;

use catchment_agent::peer::PeerSecurity;
use catchment_agent::peer::message::{Frame, Hello, PeerMessage, RemoteRegion, Slots};
use catchment_agent::policy::Policy;
use catchment_agent::protocol::{By, Peer};
use catchment_agent::{Agent, AgentOptions, AgentProvider, peers, rounds, status};
use catchment_conformance::{Options, Side, eventually};
use catchment_control::drum::{Header, Message as Round, Offer};
use catchment_probe::child::{Child, role, say};
use catchment_session::cert::{Authority, LEAF_VALIDITY};
use catchment_session::io::{ClientSecurity, ServerSecurity};
use catchment_session::reread::{ClientTls, ServerTls};
use catchment_session::tls::TlsFiles;
use catchment_verbs::Provider as _;
use raw::{LEASE_MS, Raw, hello};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::time::SystemTime;

/// The second processes do their work here; nothing in the first.
#[test]
fn second_process() {
    let Some(policy) = role() else { return };
    let agent = Agent::start(Policy::parse(&policy).unwrap()).unwrap();
    say(&agent.local().map_or_else(String::new, ToString::to_string));
    std::io::stdin().lines().for_each(drop);
}

fn name(text: &str) -> String {
    format!("{text}-{}", std::process::id())
}

fn policy(name: &str, host: u32, dials: &[&str]) -> String {
    let between = serde_json::json!({
        "listen": "127.0.0.1:0", "peers": dials, "host": host, "lease_ms": LEASE_MS,
        "send_bytes_per_s": 1e9 as u64, "completion_bytes_per_s": 1e9 as u64
    });
    serde_json::json!({ "name": name, "applications": [], "between": between }).to_string()
}

/// An agent in a process of its own, and where it listens.
fn started(name: &str, host: u32, dials: &[&str]) -> (Child, String) {
    let mut process = Child::start("second_process", &policy(name, host, dials));
    let address = process.hear();
    (process, address)
}

fn peer(agent: &str, host: u32) -> Option<Peer> {
    peers(agent).unwrap().into_iter().find(|known| known.host == Some(host))
}

fn is_up(agent: &str, host: u32) -> bool {
    peer(agent, host).is_some_and(|known| known.connected)
}

/// A session, the death of a peer, and its next life, which has a higher number.
#[test]
fn a_session_that_dies_is_dialed_again() {
    let [one, two] = ["dies", "dials"].map(name);
    let (mut first, address) = started(&one, 1, &[]);
    let (_second, _) = started(&two, 2, &[&address]);
    eventually("the session at both", || is_up(&one, 2) && is_up(&two, 1));
    let known = peer(&two, 1).unwrap();
    assert_eq!((known.name.as_str(), known.reason.as_str()), (one.as_str(), ""));
    first.kill();
    eventually("the end of the session", || !is_up(&two, 1));
    let gone = peer(&two, 1).unwrap();
    assert!(!gone.reason.is_empty(), "{gone:?}");
    // At the same address, as a service that was started again.
    let text = policy(&one, 1, &[]).replace("127.0.0.1:0", &address);
    let mut again = Child::start("second_process", &text);
    assert_eq!(again.hear(), address);
    eventually("the session with the next life", || is_up(&two, 1) && is_up(&one, 2));
    assert!(peer(&two, 1).unwrap().epoch > known.epoch);
}

/// Both know each other's address, and each has one session.
#[test]
fn a_pair_of_hosts_has_one_session_though_both_dial() {
    let [one, two] = ["both-one", "both-two"].map(name);
    let (first, address) = started(&one, 1, &[]);
    let (_second, other) = started(&two, 2, &[&address]);
    drop(first);
    let text = policy(&one, 1, &[&other]).replace("127.0.0.1:0", &address);
    let _first = Child::start("second_process", &text).hear_and_keep();
    eventually("the session at both", || is_up(&one, 2) && is_up(&two, 1));
    let connected = |agent| peers(agent).unwrap().iter().filter(|peer| peer.connected).count();
    assert_eq!((connected(&one), connected(&two)), (1, 1));
}

trait Heard {
    fn hear_and_keep(self) -> Self;
}

impl Heard for Child {
    fn hear_and_keep(mut self) -> Self {
        self.hear();
        self
    }
}

/// A peer that was stopped closes no connection: only its lease tells.
#[test]
fn a_lease_says_when_a_peer_is_gone() {
    let [one, two] = ["stops", "waits"].map(name);
    let (first, address) = started(&one, 1, &[]);
    let (_second, _) = started(&two, 2, &[&address]);
    eventually("the session", || is_up(&two, 1));
    let process = Pid::from_raw(i32::try_from(first.id()).unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    eventually("the end of the lease", || !is_up(&two, 1));
    let reason = peer(&two, 1).unwrap().reason;
    assert!(reason.starts_with("nothing was heard for a lease of 1.5s"), "{reason}");
    kill_process(process, Signal::CONT).unwrap();
    eventually("another session", || is_up(&two, 1) && is_up(&one, 2));
}

/// An agent of this process, for peers that no honest agent would be.
fn target(text: &str) -> (Agent, String) {
    let name = name(text);
    (Agent::start(Policy::parse(&policy(&name, 1, &[])).unwrap()).unwrap(), name)
}

/// What a first message may not be, and the reason that is told.
#[test]
fn a_peer_is_refused_with_the_reason() {
    let (agent, name) = target("refuses");
    let good = || hello(2, 7);
    for (hello, said) in [
        (Hello { version: 0, ..good() }, "the peer speaks version 0 of the protocol"),
        (Hello { epoch: 0, ..good() }, "epoch is out of range: 0"),
        (Hello { alpha: -1.0, ..good() }, "alpha is out of range: -1"),
        (Hello { alpha: 1e30, ..good() }, "alpha is out of range: 1000"),
        (Hello { alpha: 2.0, ..good() }, "alpha is 1 here and 2 there"),
        (Hello { rates: false, ..good() }, "this agent agrees on rates and the other does not"),
        (Hello { lease_ms: 1, ..good() }, "lease_ms is out of range: 1"),
        (Hello { lease_ms: 1000, ..good() }, "lease_ms is 1500 here and 1000 there"),
        (Hello { device: "G".repeat(32), ..good() }, "device is out of range"),
        (Hello { name: "\u{1b}[2J".into(), ..good() }, "name is out of range: \\u{1b}[2J"),
        (Hello { host: 1, ..good() }, "both hosts have the number 1"),
    ] {
        let reason = Raw::greet(&agent, hello).refusal();
        assert!(reason.starts_with(said), "{reason}");
    }
    let older = r#"{"type": "hello", "version": 0, "members": "of another time"}"#;
    for (bytes, said) in [
        (
            older.as_bytes(),
            "the peer speaks version 0 of the protocol between agents, this agent 6: update",
        ),
        (br#"{"type": "hello", "version": 6, "alpha": NaN}"#, "a message that cannot be read"),
        (br#"{"type": "ping"}"#, "the first message is no hello"),
        (b"\x01\x02\0\0", "a message of a round"),
        (b"", "a message of a round"),
    ] {
        let mut raw = Raw::dial(&agent);
        raw.send(bytes);
        let reason = raw.refusal();
        assert!(reason.starts_with(said), "{reason}");
    }
    let mut raw = Raw::dial(&agent);
    raw.0.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let reason = raw.refusal();
    assert!(reason.starts_with("a message of 1195725856 bytes"), "{reason}");
    assert_eq!(peers(&name).unwrap(), [], "nobody was let in");
    // And an honest one is, all the same.
    drop(Raw::welcome(&agent, good()));
}

/// Bytes of a message of a round, of this epoch.
fn round(epoch: u32, entry: &[f32; 5]) -> Vec<u8> {
    let mut bytes = vec![1, 2, 0, 1];
    for word in [epoch, 0, 0, 0, 9, 0, 0, 0, 0, 1, 1] {
        bytes.extend(word.to_be_bytes());
    }
    entry.iter().for_each(|value| bytes.extend(value.to_be_bytes()));
    bytes
}

/// What a peer may not say of shared queue pairs and slots, and the reason that is told.
fn of_shared_queue_pairs() -> Vec<(Vec<u8>, &'static str)> {
    let region = |addr, bytes, access| {
        let region = Some(RemoteRegion { rkey: 1, addr, bytes, access });
        PeerMessage::Region { queue_pair: 1, to: 2, rkey: 3, region }.encode()
    };
    let shared_qp = |endpoint: &str| {
        PeerMessage::QueuePair { number: 0, endpoint: endpoint.to_owned() }.encode()
    };
    let elsewhere = format!("{}/1/2", "5a".repeat(16));
    let slots = |endpoint: &str, addr, bytes| {
        let (number, rkey, endpoint) = (1, 2, endpoint.to_owned());
        PeerMessage::Slots(Slots { number, endpoint, rkey, addr, bytes }).encode()
    };
    vec![
        (region(u64::MAX - 7, 9, 2), "length of a region is out of range: 9"),
        (region(0, 8, 1), "access is out of range: 1"),
        (region(0, 8, 1 << 30), "access is out of range"),
        (shared_qp("nowhere"), "endpoint is out of range: nowhere"),
        (shared_qp(&elsewhere), "the endpoint of a shared queue pair is not of its device"),
        (slots("nowhere", 0, 512), "endpoint is out of range: nowhere"),
        (slots(&elsewhere, u64::MAX - 7, 512), "length of slots is out of range: 512"),
        (slots(&elsewhere, 0, 511), "length of slots is out of range: 511"),
        (slots(&elsewhere, 0, 512), "the endpoint of its slots is not of its device"),
        (br#"{"type": "share", "queue_pair": -1, "to": 2}"#.to_vec(), "a message that cannot be"),
        (br#"{"type": "revoke", "rkey": 4294967296}"#.to_vec(), "a message that cannot be read"),
    ]
}

/// What is answered to a peer that asks for what it does not share, and what it says of that is not heeded.
#[test]
fn a_mad_peer_learns_no_keys_and_shares_nothing() {
    let (agent, name) = target("learns-nothing");
    let mut raw = Raw::welcome(&agent, hello(2, 7));
    raw.send(&PeerMessage::Share { queue_pair: 5, to: 6 }.encode());
    for (queue_pair, to, yes) in [(6, 5, true), (7, 8, false)] {
        raw.send(&PeerMessage::Shared { queue_pair, to, yes }.encode());
    }
    for number in [0, u32::MAX] {
        raw.send(&PeerMessage::Ready { number }.encode());
        raw.send(&PeerMessage::Lost { number, answer: true }.encode());
    }
    raw.send(&PeerMessage::Revoked { rkey: 9 }.encode());
    raw.send(&PeerMessage::Apart { queue_pair: 5, to: 6, answer: true }.encode());
    raw.send(&PeerMessage::Alone { queue_pair: 5, to: 6 }.encode());
    raw.send(&PeerMessage::Key { queue_pair: 5, to: 6, rkey: 9 }.encode());
    raw.send(&PeerMessage::Revoke { rkey: 9 }.encode());
    let answers = [(); 5].map(|()| raw.hear());
    let expected = [
        PeerMessage::Shared { queue_pair: 6, to: 5, yes: false },
        PeerMessage::Apart { queue_pair: 5, to: 6, answer: true },
        PeerMessage::Alone { queue_pair: 5, to: 6 },
        PeerMessage::Region { queue_pair: 6, to: 5, rkey: 9, region: None },
        PeerMessage::Revoked { rkey: 9 },
    ];
    assert_eq!(answers, expected);
    let known = peer(&name, 2).unwrap();
    assert_eq!((known.connections, known.queue_pairs), (0, 0));
}

/// What a peer with a session may not say, and the reason that is told. It takes its session only.
#[test]
fn a_mad_peer_is_turned_away_with_the_reason() {
    let (agent, name) = target("turns-away");
    let _honest = Raw::welcome(&agent, hello(3, 1));
    let entry = [1.0, 1.0, 1.0, 1.0, 0.0];
    let mut frames: Vec<(Vec<u8>, &str)> = Vec::new();
    for bad in [f32::NAN, f32::INFINITY, -1.0, 1e31, 0.0] {
        let wrong = [bad, 1.0, 1.0, 1.0, 0.0];
        frames.push((round(7, &wrong), "a message of a round: value is out of range"));
    }
    let last = [1.0, 1.0, 1.0, 1.0, f32::NEG_INFINITY];
    frames.push((round(7, &last), "a message of a round: held grant is out of range"));
    frames.push((round(6, &entry), "a message of epoch 6 in a session of epoch 7"));
    frames.push((round(8, &entry), "a message of epoch 8 in a session of epoch 7"));
    let short = round(7, &entry);
    frames.push((short[..short.len() - 1].to_vec(), "a message of a round: 67 bytes do not hold"));
    let many = PeerMessage::Where { queue_pairs: vec![0; 257] };
    frames.push((many.encode(), "number of queue pairs is out of range: 257"));
    frames.push((b"{".to_vec(), "a message that cannot be read"));
    frames.push((vec![b'{'; 1 << 15], "a message of 32768 bytes"));
    frames.push((PeerMessage::Hello(hello(2, 7)).encode(), "a session has one hello"));
    frames.extend(of_shared_queue_pairs());
    for (bytes, said) in frames {
        let mut raw = Raw::welcome(&agent, hello(2, 7));
        raw.send(&bytes);
        let reason = raw.refusal();
        assert!(reason.starts_with(said), "{reason} in place of {said}");
        eventually("the end of its session", || !is_up(&name, 2));
        let noted = peer(&name, 2).unwrap().reason;
        assert!(noted.contains(said), "{noted}");
    }
    // An earlier life of it comes back.
    let reason = Raw::greet(&agent, hello(2, 6)).refusal();
    assert!(reason.starts_with("epoch 6 of host 2 is over, 7 was heard"), "{reason}");
    assert!(is_up(&name, 3), "the other one has its session");
}

/// What a mad peer offers for applications that do not exist is refused and counted; for one that does, it gets no
/// more than there is.
#[test]
fn a_mad_peer_is_granted_no_more_than_there_is() {
    const CAPACITY: f64 = 1e9 / 64e6;
    let name = name("grants");
    let text = policy(&name, 1, &[])
        .replace("\"applications\":[]", "\"applications\":[{\"name\":\"target\"}]");
    let agent = Agent::start(Policy::parse(&text).unwrap()).unwrap();
    let options = AgentOptions { agent: name.clone(), application: "target".into() };
    let context = AgentProvider::new(options).open(&name).unwrap();
    let side = Side::new(context, &Options::default());
    let mut raw = Raw::welcome(&agent, hello(2, 7));
    raw.send(&PeerMessage::Where { queue_pairs: vec![side.qp.endpoint().qpn, 1 << 23] }.encode());
    let there = loop {
        match raw.hear_any() {
            Frame::Message(PeerMessage::There { queue_pairs }) => break queue_pairs,
            Frame::Message(_) | Frame::Round(_) => {}
        }
    };
    let [(_, Some(target)), (_, None)] = there[..] else { panic!("{there:?}") };
    let (mut seen, mut granted) = (0, 0.0);
    for sequence in 1..40 {
        let header = Header { incarnation: 7, sequence, seen, ..Header::default() };
        let offer = |to| Offer {
            from: 1,
            to,
            value: 1e30,
            inverse: 1e-30,
            marginal: 1e30,
            elasticity: 1e-30,
            held: granted,
        };
        // The other is of an application that does not exist.
        let offers = vec![offer(target), offer(target + 1)];
        raw.send(&Round::Offers(header, offers).encode());
        let (header, answers) = loop {
            match raw.hear_any() {
                Frame::Round(Round::Answers(header, answers)) if !header.same => {
                    break (header, answers);
                }
                Frame::Message(_) | Frame::Round(_) => {}
            }
        };
        assert!(answers.iter().all(|answer| answer.to == target), "{answers:?}");
        seen = header.sequence;
        granted = answers.iter().map(|answer| answer.grant).sum();
        assert!(f64::from(granted) <= CAPACITY, "{granted} of {CAPACITY}");
    }
    assert!(granted > 0.0, "it is a peer, after all");
    assert_eq!(peer(&name, 2).unwrap().by, Some(By::Session), "it announced no slots");
    assert!(rounds(&name).unwrap().unwrap().refused >= 39);
    let applications = status(&name).unwrap();
    let rates = applications.iter().map(|account| account.rate_bytes_per_s);
    assert!(rates.clone().all(|rate| rate >= 0.0) && rates.sum::<f64>() <= 1e9);
}

fn security(files: &TlsFiles) -> PeerSecurity {
    PeerSecurity {
        client: ClientSecurity {
            tls: Some(ClientTls::open(files.clone()).unwrap()),
            insecure: false,
        },
        server: ServerSecurity {
            tls: Some(ServerTls::open(files.clone()).unwrap()),
            insecure: false,
        },
    }
}

/// With certificates, who has none of the authority has no session.
#[test]
fn certificates_decide_who_is_a_peer() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let authority = Authority::create(folder.path(), now).unwrap();
    let files =
        |name: &str| authority.issue(name, &[name, "127.0.0.1"], now, LEAF_VALIDITY).unwrap().files;
    let [one, two, three] = ["tls-one", "tls-two", "tls-three"].map(name);
    let start = |name: &str, host, dials: &[&str], security| {
        Agent::start_secured(Policy::parse(&policy(name, host, dials)).unwrap(), security).unwrap()
    };
    let first = start(&one, 1, &[], security(&files("one")));
    let address = first.local().unwrap().to_string();
    let second = start(&two, 2, &[&address], security(&files("two")));
    let _plain = start(&three, 3, &[&address], PeerSecurity::default());
    eventually("the session", || is_up(&one, 2) && is_up(&two, 1));
    let silent = || peers(&three).unwrap().into_iter().find(|peer| peer.address.is_some());
    eventually("the reason at the other", || silent().is_some_and(|peer| !peer.reason.is_empty()));
    assert!(peer(&one, 3).is_none());
    // Another certificate of the same authority is not that host.
    drop(second);
    eventually("its end", || !is_up(&one, 2));
    assert_eq!(peer(&one, 2).unwrap().reason, "the agent there ended");
    let _other = start(&two, 2, &[&address], security(&files("other")));
    let refused = || {
        let all = peers(&two).unwrap();
        all.iter().any(|peer| peer.reason.contains("host 2 is known under another certificate"))
    };
    eventually("the refusal of another certificate", refused);
}

/// Nobody takes part in rates without saying what he can do.
#[test]
fn capacities_are_needed() {
    let text = policy(&name("no-capacity"), 1, &[]).replace(",\"send_bytes_per_s\":1000000000", "");
    let error = Agent::start(Policy::parse(&text).unwrap()).err().unwrap().to_string();
    assert!(error.contains("\"send_bytes_per_s\" and \"completion_bytes_per_s\""), "{error}");
}

/// Beyond loopback there is no session without protection.
#[test]
fn an_address_that_others_reach_needs_certificates() {
    let text = policy(&name("open"), 1, &[]).replace("127.0.0.1:0", "0.0.0.0:0");
    let error = Agent::start(Policy::parse(&text).unwrap()).err().unwrap().to_string();
    assert!(error.contains("--insecure") && error.contains("catchment cert"), "{error}");
}
