//! How connections end: closed, dropped, killed.
use crate::agents::{self, agent, connected};
use catchment_application::{Application, Connection, Error};
use catchment_probe::child::{Child, say};
use std::time::Duration;

/// Calls, and takes nothing.
pub(crate) fn keep_silent(name: &str) {
    let _store = Application::open(name).unwrap().connect("", "store").unwrap();
    say("connected");
    std::io::stdin().lines().for_each(drop);
}

/// Sends as much as it can, says how much that is, and is killed.
pub(crate) fn send_and_die(name: &str) {
    let mut store = Application::open(name).unwrap().connect("", "store").unwrap();
    store.set_patience(Duration::from_millis(50));
    let mut sent = 0_u32;
    while store.send(&sent.to_le_bytes()).is_ok() {
        sent += 1;
    }
    say(&sent.to_string());
    std::io::stdin().lines().for_each(drop);
}

fn broken(result: Result<Option<Vec<u8>>, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Broken(_)), "{error}");
    error.to_string()
}

/// A caller of a process of its own.
fn caller(role: &str, text: &str) -> (agents::Held, Child, Connection) {
    let (agent, name) = agent(text);
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    let child = Child::start("second_process", &format!("{role} vision@{name}"));
    let connection = service.accept().unwrap();
    (agents::Held { _agent: agent, _service: service }, child, connection)
}

/// What was sent before a connection was closed or dropped arrives, and then nothing.
#[test]
fn what_was_sent_before_the_end_arrives() {
    let (_agent, name) = agent("closes");
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    for closes in [true, false] {
        let (mut here, mut there) = connected(&name, &service, "vision");
        for number in 0..10_u8 {
            here.send(&[number; 100]).unwrap();
        }
        let taken = std::thread::scope(|scope| {
            let taken = scope.spawn(|| {
                let mut taken = Vec::new();
                while let Some(message) = there.recv().unwrap() {
                    taken.push(message);
                }
                assert_eq!(there.send(b"late"), Err(Error::Closed));
                taken
            });
            if closes {
                here.close().unwrap();
            } else {
                drop(here);
            }
            taken.join().unwrap()
        });
        let sent: Vec<_> = (0..10_u8).map(|number| vec![number; 100]).collect();
        assert_eq!(taken, sent);
        assert_eq!(there.recv(), Ok(None));
        there.close().unwrap();
    }
}

/// An end that gives up in the middle of a message says no word of it: the other one finds out.
#[test]
fn who_waits_for_the_rest_of_a_message_finds_out_that_there_is_none() {
    let (_agent, name) = agent("half");
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    let (mut here, mut there) = connected(&name, &service, "vision");
    here.set_patience(Duration::from_millis(20));
    let half = here.send(&vec![1; 4 << 20]).unwrap_err().to_string();
    assert_eq!(half, "the connection broke: the peer has left a message half taken for 20ms");
    assert_eq!(here.send(b"more").unwrap_err().to_string(), half);
    drop(here);
    broken(there.recv());
}

/// Both close at once.
#[test]
fn both_ends_close_at_once() {
    let (_agent, name) = agent("both-close");
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    let (here, there) = connected(&name, &service, "vision");
    std::thread::scope(|scope| {
        let closed = scope.spawn(|| there.close());
        here.close().unwrap();
        closed.join().unwrap().unwrap();
    });
}

/// A peer that takes nothing does not close: who waits for that is told.
#[test]
fn a_peer_that_takes_nothing_keeps_nobody_for_ever() {
    let (_held, _child, mut connection) = caller("silent", "keeps");
    connection.send(b"for nobody").unwrap();
    let patience = Duration::from_millis(50);
    connection.set_patience(patience);
    assert_eq!(connection.close(), Err(Error::Timeout(patience)));
}

/// The end of a peer that was killed is told, after all that it had sent.
#[test]
fn what_a_peer_sent_before_it_was_killed_arrives() {
    let (_held, mut child, mut connection) = caller("sends", "killed");
    let sent: u32 = child.hear().parse().unwrap();
    assert!(sent > 0);
    child.kill();
    for number in 0..sent {
        assert_eq!(connection.recv().unwrap().unwrap(), number.to_le_bytes());
    }
    let reason = broken(connection.recv());
    assert_eq!(broken(connection.recv()), reason, "it is said again");
    assert!(matches!(connection.send(b"x"), Err(Error::Broken(_))));
    assert!(matches!(connection.close(), Err(Error::Broken(_))));
}

/// One who sleeps in a call is woken by the end of its peer.
#[test]
fn who_waits_hears_of_the_end_of_a_peer() {
    let (_held, mut child, mut connection) = caller("silent", "sleeps");
    child.hear();
    let waits = std::thread::spawn(move || connection.recv());
    child.kill();
    broken(waits.join().unwrap());
}

/// An agent that is killed ends connections, services and calls, each with an error; a new one serves again.
#[test]
fn the_end_of_an_agent_is_told_to_all() {
    let name = agents::name("agent-dies");
    let role = format!("agent {}", agents::policy(&name));
    let mut first = Child::start("second_process", &role);
    first.hear();
    let open = |application: &str| Application::open(&format!("{application}@{name}")).unwrap();
    let service = open("store").serve("store").unwrap();
    let (mut here, mut there) = connected(&name, &service, "vision");
    let vision = open("vision");
    std::thread::scope(|scope| {
        // Nobody answers it.
        let calls = scope.spawn(|| vision.connect("", "store").map(drop));
        let caller = service.next().unwrap();
        first.kill();
        let refused = calls.join().unwrap().unwrap_err().to_string();
        assert!(refused.contains("the agent"), "{refused}");
        drop(caller);
    });
    broken(here.recv());
    broken(there.recv());
    assert!(service.next().map(drop).unwrap_err().to_string().contains("the agent has ended"));
    let mut second = Child::start("second_process", &role);
    second.hear();
    let service = open("store").serve("store").unwrap();
    let (mut here, mut there) = connected(&name, &service, "vision");
    here.send(b"again").unwrap();
    assert_eq!(there.recv().unwrap().unwrap(), b"again");
}
