//! Services that are offered and called by those who speak the protocol themselves, as no honest application and no honest
//! agent would.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod raw;

use catchment_agent::peer::message::PeerMessage;
use catchment_agent::policy::Policy;
use catchment_agent::protocol::{self, Call, Reply, Request, VERSION};
use catchment_agent::{Agent, AgentOptions, Application};
use catchment_conformance::eventually;
use catchment_provider_shm::seqpacket;
use raw::{LEASE_MS, Raw, hello};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn agent(text: &str) -> (Agent, String) {
    let name = format!("calls-{text}-{}", std::process::id());
    let between = serde_json::json!({
        "listen": "127.0.0.1:0", "host": 1, "lease_ms": LEASE_MS,
        "send_bytes_per_s": 1e9 as u64, "completion_bytes_per_s": 1e9 as u64
    });
    let applications = serde_json::json!([{ "name": "good" }, { "name": "bad" }]);
    let policy =
        serde_json::json!({ "name": name, "applications": applications, "between": between });
    (Agent::start(Policy::parse(&policy.to_string()).unwrap()).unwrap(), name)
}

fn dial(agent: &str) -> OwnedFd {
    seqpacket::connect(&protocol::address(agent).unwrap(), soon()).unwrap()
}

fn say(socket: &OwnedFd, request: &Request) {
    protocol::send(socket.as_fd(), request, &[]).unwrap();
}

/// What the agent says next; nothing once it has hung up.
fn hear(socket: &OwnedFd) -> Option<Reply> {
    let heard = protocol::receive(socket.as_fd(), protocol::REPLY_BYTES, soon());
    heard.unwrap().map(|(reply, _)| reply)
}

fn refusal(socket: &OwnedFd) -> String {
    match hear(socket) {
        Some(Reply::Refused { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn offer(version: u32, name: &str) -> Request {
    Request::Offer { version, application: name.to_owned(), service: name.to_owned() }
}

fn call(service: &str, card: &str) -> Request {
    Request::Call(Call {
        version: VERSION,
        application: "good".to_owned(),
        host: String::new(),
        addresses: Vec::new(),
        service: service.to_owned(),
        card: card.to_owned(),
    })
}

/// A caller who waits, and whom `service` was told of.
fn waiting(name: &str, service: &OwnedFd) -> OwnedFd {
    let caller = dial(name);
    say(&caller, &call("bad", "card"));
    assert!(matches!(hear(service), Some(Reply::Called { .. })));
    caller
}

/// A service that is offered, once whoever offered it before has ended.
fn offered(name: &str) -> OwnedFd {
    let mut service = dial(name);
    eventually("the name is free", || {
        say(&service, &offer(VERSION, "bad"));
        let is_free = hear(&service) == Some(Reply::Done);
        if !is_free {
            service = dial(name);
        }
        is_free
    });
    service
}

#[test]
fn what_no_honest_service_says_ends_that_service_alone() {
    let (_agent, name) = agent("service");
    let accept = |call, card: &str| Request::Accept { call, card: card.to_owned() };
    let service = offered(&name);
    // Of nobody, before and after.
    say(&service, &accept(7, "card"));
    let caller = waiting(&name, &service);
    say(&service, &accept(1, &"c".repeat(513)));
    assert!(refusal(&caller).contains("a card of 513 bytes: at most 512 are passed on"));
    say(&service, &accept(1, "again"));
    let caller = waiting(&name, &service);
    say(&service, &accept(2, "card"));
    assert_eq!(hear(&caller), Some(Reply::Accepted { card: "card".into() }));
    let caller = waiting(&name, &service);
    say(&service, &Request::AllocPd);
    assert!(refusal(&service).contains("a service accepts or rejects callers"));
    assert!(refusal(&caller).contains("the service \"bad\" has ended"));
    for bytes in [&b"{\"what\": \"accept\"}"[..], b"\xff", &[b' '; 4096]] {
        let service = offered(&name);
        let caller = waiting(&name, &service);
        seqpacket::send(service.as_fd(), bytes, &[]).unwrap();
        assert!(refusal(&caller).contains("has ended"));
        assert_eq!(hear(&service), None);
    }
}

#[test]
fn what_no_honest_caller_says_is_refused_by_name() {
    let (_agent, name) = agent("caller");
    let refused = |request: &Request| {
        let socket = dial(&name);
        say(&socket, request);
        refusal(&socket)
    };
    assert!(refused(&offer(VERSION - 1, "bad")).contains(&format!("speaks version {VERSION}")));
    assert!(refused(&offer(VERSION, "stranger")).contains("no application \"stranger\""));
    assert!(refused(&call("bad", &"c".repeat(513))).contains("a card of 513 bytes"));
    assert!(refused(&call("no name", "card")).contains("cannot name a service"));
    assert!(refused(&call("bad", "card")).contains("no service \"bad\"; none is offered there"));
    assert!(refused(&Request::Reject { call: 1, reason: String::new() }).contains("Hello"));
}

/// Callers pile up for one who answers nobody; another service is called all the same.
#[test]
fn a_service_that_answers_nobody_holds_up_no_other() {
    let (_agent, name) = agent("silent");
    let silent = offered(&name);
    let callers: Vec<_> = (0..70).map(|_| dial(&name)).collect();
    callers.iter().for_each(|caller| say(caller, &call("bad", "card")));
    let options = AgentOptions { agent: name.clone(), application: "good".into() };
    let good = Application::open(&options).unwrap();
    let offer = good.offer("good").unwrap();
    std::thread::scope(|scope| {
        let called = scope.spawn(|| good.call(("", &[]), "good", "mine"));
        let incoming = offer.next(soon()).unwrap().unwrap();
        assert_eq!(
            (&*incoming.application, incoming.host, &*incoming.card),
            ("good", None, "mine")
        );
        offer.accept(incoming.number, "theirs").unwrap();
        assert_eq!(called.join().unwrap().unwrap(), "theirs");
    });
    drop(silent);
    let told = callers.iter().map(refusal).filter(|reason| reason.contains("has ended")).count();
    assert!((1..=64).contains(&told), "{told}");
}

/// What another agent says of calls is checked, answered with the reason, and heeded where it was asked for.
#[test]
fn a_mad_peer_calls_what_there_is_and_no_more() {
    let (agent, name) = agent("mad");
    let mut peer = Raw::welcome(&agent, hello(9, 5));
    let ask = |call: u64, service: &str, card: &str| {
        let (service, card) = (service.to_owned(), card.to_owned());
        PeerMessage::Call { call, service, application: "theirs".to_owned(), card }.encode()
    };
    let answer = |peer: &mut Raw| loop {
        let heard = peer.hear();
        if let PeerMessage::Called { call, card, reason } = heard {
            return (call, card, reason);
        }
    };
    peer.send(&ask(3, "bad", "card"));
    let (call, card, reason) = answer(&mut peer);
    assert_eq!((call, card), (3, None));
    assert!(reason.contains("no service \"bad\""), "{reason}");
    // Nobody asked for it.
    let called = PeerMessage::Called { call: 1, card: Some("x".into()), reason: String::new() };
    peer.send(&called.encode());
    let service = offered(&name);
    peer.send(&ask(4, "bad", "card"));
    let told = hear(&service);
    let (application, card) = ("theirs".to_owned(), "card".to_owned());
    assert_eq!(told, Some(Reply::Called { call: 1, application, host: Some(9), card }));
    say(&service, &Request::Accept { call: 1, card: "mine".into() });
    assert_eq!(answer(&mut peer), (4, Some("mine".to_owned()), String::new()));
    for (wrong, said) in [
        (ask(5, "no name", "card"), "service is out of range: no name"),
        (ask(5, "bad", &"c".repeat(513)), "card is out of range"),
    ] {
        let mut peer = Raw::welcome(&agent, hello(9, 6));
        peer.send(&wrong);
        let reason = peer.refusal();
        assert!(reason.starts_with(said), "{reason}");
    }
}
