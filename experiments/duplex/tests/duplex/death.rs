//! `kill -9` of either end: the other gets an error, releases everything, and does not hang.
use super::soak::{serve_and_strike, talk};
use super::talk::{answer, ask};
use super::*;
use catchment_probe::child::{Child, role, say};

fn opener(provider: &str) -> Opener {
    match provider {
        "shm" => shm(),
        "roce" => roce(),
        other => panic!("{other}"),
    }
}

/// Starts a second process: `server PROVIDER`, `client PROVIDER ADDRESS`, or one of `soak.rs`.
pub(crate) fn start(role: &str) -> Child {
    Child::start("death::peer_process", role)
}

/// Not a test by itself: the end that gets killed, or has the other as its child.
#[test]
fn peer_process() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let (open, options) = (opener(words[1]), options(4, 64, "child"));
    match words[..] {
        ["server", _] => {
            let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
            say(&format!("address {}", served.address));
            std::thread::park();
        }
        ["client", _, address] => {
            let mut link = connect(address.parse().unwrap(), open(), &options).unwrap();
            ask(&mut link, 9, 64, 5, 2);
            say("talked");
            std::thread::park();
        }
        ["talker", _, address, number] => {
            talk(open, address.parse().unwrap(), number.parse().unwrap());
        }
        ["soak", provider] => serve_and_strike(provider, &open),
        _ => panic!("{role}"),
    }
}

#[test]
fn a_server_notices_that_a_client_was_killed() {
    for provider in ["shm", "roce"] {
        let open = opener(provider);
        let options = options(4, 64, "alive");
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        let mut peers: Vec<Child> =
            (0..3).map(|_| start(&format!("client {provider} {}", served.address))).collect();
        peers.iter_mut().for_each(|peer| drop(peer.says("talked")));
        let mut other = connect(served.address, open(), &options).unwrap();
        for (killed, peer) in (1..).zip(&mut peers) {
            peer.kill();
            until("it is noticed", || served.server.counts().failed == killed);
        }
        ask(&mut other, 1, 64, 10, 2);
        other.finish(PATIENCE).unwrap();
        until("the other is served", || served.server.counts().served == 1);
        nothing_left(&served.census);
    }
}

#[test]
fn a_client_notices_that_its_server_was_killed() {
    for provider in ["shm", "roce"] {
        let open = opener(provider);
        let mut peer = start(&format!("server {provider}"));
        let address: SocketAddr = peer.says("address ").parse().unwrap();
        let (context, census) = Census::of(open());
        let mut link = connect(address, context, &options(4, 64, "alive")).unwrap();
        ask(&mut link, 1, 64, 10, 2);
        std::thread::scope(|scope| {
            // It sleeps, with nothing in flight, when the server dies.
            let waiting = scope.spawn(|| failure(&mut link));
            peer.kill();
            waiting.join().unwrap();
        });
        assert!(!link.said_goodbye());
        link.close().unwrap();
        assert_eq!(census.total(), 0);
    }
}
