//! Applications of agents that use no verbs: messages and named memory, within a host and between two, over real agents.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod agents;
mod between;
mod ends;
mod examples;
mod hints;
mod names;
mod regions;

use agents::agent;
use catchment_application::{Application, Connection, Error};
use catchment_probe::child::role;
use std::time::Duration;

/// The second processes do their work here; nothing in the first.
#[test]
fn second_process() {
    let Some(role) = role() else { return };
    match role.split_once(' ') {
        Some(("echo", name)) => echo(name),
        Some(("silent", name)) => ends::keep_silent(name),
        Some(("sends", name)) => ends::send_and_die(name),
        Some(("agent", policy)) => agents::serve(policy),
        other => panic!("no role {other:?}"),
    }
}

/// Answers each caller with what he says.
fn echo(name: &str) {
    let service = Application::open(name).unwrap().serve("store").unwrap();
    catchment_probe::child::say("ready");
    loop {
        let mut caller = service.accept().unwrap();
        let _ = answer(&mut caller);
    }
}

fn answer(caller: &mut Connection) -> Result<(), Error> {
    while let Some(message) = caller.recv()? {
        caller.send(&message)?;
    }
    Ok(())
}

/// Lengths at which parts of messages begin and end.
const LENGTHS: [usize; 9] = [0, 1, 100, 65_535, 65_536, 65_537, 131_072, 921_600, (8 << 20) + 1];

fn message(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Asks and compares, with messages of all lengths.
fn ask(connection: &mut Connection, lengths: &[usize]) {
    for (seed, bytes) in lengths.iter().enumerate() {
        let sent = message(*bytes, seed as u8);
        connection.send(&sent).unwrap();
        let received = connection.recv().unwrap().unwrap();
        assert!(received == sent, "{bytes} bytes came as {}", received.len());
    }
}

/// Messages of any length arrive whole, in order and once, and nothing of a connection that was closed remains.
#[test]
fn messages_arrive_whole() {
    let (_agent, name) = agent("whole");
    let mut echo =
        catchment_probe::child::Child::start("second_process", &format!("echo store@{name}"));
    echo.hear();
    let vision = Application::open(&format!("vision@{name}")).unwrap();
    for _ in 0..3 {
        let mut store = vision.connect("", "store").unwrap();
        ask(&mut store, &LENGTHS);
        store.close().unwrap();
    }
    let mut store = vision.connect("", "store").unwrap();
    for number in 0..1000_u32 {
        store.send(&number.to_le_bytes()).unwrap();
        if number >= 8 {
            let received = store.recv().unwrap().unwrap();
            assert_eq!(received, (number - 8).to_le_bytes());
        }
    }
    drop(store);
    // It waits for callers for ever.
    echo.kill();
    assert!(catchment_agent::status(&name).unwrap().iter().all(|account| account.failed == 0));
}

/// Who waits for nothing is told so, and goes on.
#[test]
fn a_wait_ends_and_the_connection_goes_on() {
    let (_agent, name) = agent("waits");
    let service = Application::open(&format!("store@{name}")).unwrap().serve("store").unwrap();
    assert!(service.next_within(Duration::from_millis(1)).unwrap().is_none());
    let (mut here, mut there) = agents::connected(&name, &service, "vision");
    let short = Duration::from_millis(1);
    assert_eq!(here.recv_within(short), Err(Error::Timeout(short)));
    // The peer takes nothing: so much fits.
    here.set_patience(Duration::from_millis(20));
    let mut sent = 0_u32;
    while here.send(&sent.to_le_bytes()) != Err(Error::Timeout(Duration::from_millis(20))) {
        sent += 1;
    }
    assert!(sent >= 16, "{sent}");
    for number in 0..sent {
        assert_eq!(there.recv().unwrap().unwrap(), number.to_le_bytes());
    }
    here.send(b"more").unwrap();
    assert_eq!(there.recv().unwrap().unwrap(), b"more");
}
