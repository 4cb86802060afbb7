//! Two ends in one process, over real sockets and real queue pairs: what a program at either end may rely on.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]
mod common;

use catchment_probe::load::scaled;
use catchment_probe::random::Random;
use catchment_tunnel::{Mode, TunnelEvent};
use common::{Tunnel, clients, echo, refuse_rst, unix_echo};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Sends random bytes and checks that the same come back, while it sends.
fn exchange(mut stream: TcpStream, seed: u64, bytes: usize) {
    let mut sent = vec![0; bytes];
    Random::new(seed).fill(&mut sent);
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let thread = thread::spawn(move || {
        for piece in copy.chunks(1 + seed as usize * 977 % 50_000) {
            writer.write_all(piece).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::with_capacity(bytes);
    stream.read_to_end(&mut received).unwrap();
    thread.join().unwrap();
    assert!(received == sent, "connection {seed}: {} of {bytes} bytes, or others", received.len());
}

/// S5.25: the bytes of many connections at once, each with its own, over both providers, in all modes.
#[test]
fn s5_25_connections_carry_their_own_bytes() {
    for (provider, mode) in
        ["shm", "roce"].into_iter().flat_map(|one| Mode::ALL.map(|it| (one, it)))
    {
        let tunnel = Tunnel::start_in(mode, provider, &echo());
        let all: Vec<_> = (0..40)
            .map(|seed| {
                let stream = tunnel.client();
                thread::spawn(move || exchange(stream, seed, 1 << (seed % 20)))
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
        tunnel.wait_until_none_is_open();
        let totals = tunnel.client.totals();
        assert_eq!((totals.connections, totals.connections_broken), (40, 0), "{provider}, {mode}");
    }
}

/// S5.25: up to 512 MB (`CATCHMENT_TEST_SCALE=8`), in all modes.
#[test]
fn s5_25_a_large_value_arrives_identical() {
    for mode in Mode::ALL {
        let tunnel = Tunnel::start_in(mode, "shm", &echo());
        let most = if mode == Mode::default() { 64 << 20 } else { 16 << 20 };
        exchange(tunnel.client(), 3, scaled(most) as usize);
    }
}

/// One request at a time, with pauses in which both ends sleep: each is woken, whatever the mode.
#[test]
fn s5_25_requests_after_pauses_wake_both_ends() {
    for (provider, mode) in
        ["shm", "roce"].into_iter().flat_map(|one| Mode::ALL.map(|it| (one, it)))
    {
        let tunnel = Tunnel::start_in(mode, provider, &echo());
        let mut client = tunnel.client();
        for round in 0..300_u32 {
            client.write_all(&round.to_le_bytes()).unwrap();
            let mut back = [0; 4];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, round.to_le_bytes(), "{provider}, {mode}");
            if round % 3 == 0 {
                // Longer than an end looks before it sleeps; nothing depends on that it does.
                thread::sleep(Duration::from_micros(u64::from(round) * 7 % 600));
            }
        }
    }
}

#[test]
fn unix_sockets_do_at_either_end() {
    let dir = tempfile::tempdir().unwrap();
    let (service, listen) = (dir.path().join("service"), dir.path().join("clients"));
    unix_echo(&service);
    let tunnel = Tunnel::between(
        &format!("unix:{}", listen.display()),
        &format!("unix:{}", service.display()),
        "shm",
    );
    let mut stream = std::os::unix::net::UnixStream::connect(&listen).unwrap();
    stream.write_all(b"over and back").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).unwrap();
    assert_eq!(back, "over and back");
    drop(tunnel);
    assert!(!listen.exists(), "nothing is left");
}

#[test]
fn a_direction_closes_alone_and_the_other_goes_on() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let tunnel = Tunnel::start("shm", &service.local_addr().unwrap().to_string());
    let mut client = tunnel.client();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (mut served, _) = service.accept().unwrap();
    let mut question = String::new();
    served.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    // The client has closed its direction: the answer still goes.
    served.write_all(b"a long answer").unwrap();
    drop(served);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "a long answer");
    // The other way round.
    let mut client = tunnel.client();
    let (served, _) = service.accept().unwrap();
    served.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    client.write_all(b"still heard").unwrap();
    drop(client);
    let mut heard = String::new();
    { served }.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "still heard");
}

#[test]
fn a_reader_that_does_not_read_holds_up_nobody_and_loses_nothing() {
    Mode::ALL.into_iter().for_each(do_not_read);
}

fn do_not_read(mode: Mode) {
    let tunnel = Tunnel::start_in(mode, "shm", &echo());
    let mut slow = tunnel.client();
    slow.set_write_timeout(Some(Duration::from_millis(600))).unwrap();
    // Writes until sockets and windows both ways are full.
    let (mut sent, mut random, mut piece) = (0, Random::new(1), [0; 4096]);
    loop {
        random.fill(&mut piece);
        match slow.write(&piece) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        if sent % piece.len() != 0 {
            break;
        }
    }
    assert!(sent > 500_000, "{sent} bytes fill it");
    for seed in 0..8 {
        exchange(tunnel.client(), seed, 300_000);
    }
    slow.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    slow.read_to_end(&mut back).unwrap();
    let mut random = Random::new(1);
    let mut expected = vec![0; back.len().next_multiple_of(4096)];
    expected.chunks_mut(4096).for_each(|piece| random.fill(piece));
    assert!(back == expected[..back.len()] && back.len() == sent, "{} bytes", back.len());
}

#[test]
fn a_service_that_refuses_or_breaks_breaks_the_connection_of_its_client_only() {
    // A port where nobody listens any more.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let tunnel = Tunnel::start("shm", &free.to_string());
    assert_eq!(tunnel.client().read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let service = TcpListener::bind(free).unwrap();
    let (mut broken, mut kept) = (tunnel.client(), tunnel.client());
    kept.write_all(b"k").unwrap();
    broken.write_all(b"b").unwrap();
    for _ in 0..2 {
        let (mut served, _) = service.accept().unwrap();
        let mut first = [0];
        served.read_exact(&mut first).unwrap();
        if first == *b"b" {
            refuse_rst(served);
        } else {
            thread::spawn(move || clients::echo(served));
        }
    }
    assert_eq!(broken.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    kept.write_all(b"more").unwrap();
    let mut back = [0; 4];
    kept.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"more");
    // And a client that breaks its connection breaks that of the service.
    refuse_rst(kept);
    tunnel.wait_until_none_is_open();
}

#[test]
fn the_end_of_either_end_breaks_its_connections_and_the_clients_end_dials_again() {
    Mode::ALL.into_iter().for_each(end_and_dial_again);
}

fn end_and_dial_again(mode: Mode) {
    let mut tunnel = Tunnel::start_in(mode, "shm", &echo());
    let mut client = tunnel.client();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
    let address = tunnel.service.as_ref().unwrap().local().clone();
    tunnel.service = None;
    assert_eq!(client.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    tunnel.expect(|event| matches!(event, TunnelEvent::Disconnected { .. }));
    // Nobody there: clients are turned away at once, not kept waiting.
    let turned_away = tunnel.client().read(&mut [0; 1]);
    assert_eq!(turned_away.unwrap_err().kind(), ErrorKind::ConnectionReset);
    tunnel.serve_again(&address);
    tunnel.expect(|event| matches!(event, TunnelEvent::Connected(_)));
    exchange(tunnel.client(), 5, 100_000);
}

#[test]
fn more_connections_than_agreed_on_are_turned_away() {
    let tunnel = Tunnel::start_with("shm", &echo(), 4);
    let mut kept: Vec<_> = (0..4).map(|_| tunnel.client()).collect();
    for client in &mut kept {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
    }
    let fifth = tunnel.client().read(&mut [0; 1]);
    assert_eq!(fifth.unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(kept);
    tunnel.wait_until_none_is_open();
    exchange(tunnel.client(), 2, 1000);
}

#[test]
fn an_unknown_service_is_refused_with_the_names_there_are() {
    let tunnel = Tunnel::start("shm", &echo());
    let (_end, events) = tunnel.dial_for("mail");
    let event = events.recv().unwrap();
    let TunnelEvent::Failed { reason, .. } = event else { panic!("{event:?}") };
    assert!(reason.contains("no service \"mail\"; there are: echo"), "{reason}");
}
