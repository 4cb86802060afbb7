//! `kill -9` of either end: the other gets an error, gives everything back, and does not hang.
use super::soak::{serve_and_strike, talk};
use super::talk::{answer, ask};
use super::*;
use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What the child is: `server PROVIDER`, `client PROVIDER ADDRESS`, or one of `soak.rs`.
const ROLE: &str = "CATCHMENT_TEST_DUPLEX_CHILD";

fn opener(provider: &str) -> Opener {
    match provider {
        "shm" => shm(),
        "roce" => roce(),
        other => panic!("{other}"),
    }
}

pub(crate) struct Peer {
    child: Child,
    // Kept open: the child waits on it.
    stdin: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Peer {
    pub(crate) fn spawn(role: &str) -> Peer {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "death::peer_process"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Peer {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// The rest of the line that has this word: the harness prints in front of it.
    pub(crate) fn says(&mut self, word: &str) -> String {
        let lines = self.lines.by_ref().map(|line| line.unwrap());
        let mut ours = lines.filter_map(|l| Some(l[l.find(word)? + word.len()..].to_owned()));
        ours.next().expect("the child says it")
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn demand_running(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "a client ended by itself: {ended:?}");
    }

    /// Lets it end, which it does when its standard input does.
    pub(crate) fn end(&mut self) {
        self.stdin = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a client was asked to end: {status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Not a test by itself: the end that gets killed, or has the other as its child.
#[test]
fn peer_process() {
    let Ok(role) = env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let (open, options) = (opener(words[1]), options(4, 64, "child"));
    match words[..] {
        ["server", _] => {
            let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
            println!("address {}", served.address);
            std::thread::park();
        }
        ["client", _, address] => {
            let mut link = connect(address.parse().unwrap(), open(), &options).unwrap();
            ask(&mut link, 9, 64, 5, 2);
            println!("talked");
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
        let mut peers: Vec<Peer> =
            (0..3).map(|_| Peer::spawn(&format!("client {provider} {}", served.address))).collect();
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
        let mut peer = Peer::spawn(&format!("server {provider}"));
        let address: SocketAddr = peer.says("address ").trim().parse().unwrap();
        let (context, census) = Census::of(open());
        let mut link = connect(address, context, &options(4, 64, "alive")).unwrap();
        ask(&mut link, 1, 64, 10, 2);
        std::thread::scope(|scope| {
            // It sleeps, with nothing on its way, when the server dies.
            let waiting = scope.spawn(|| {
                let start = Instant::now();
                loop {
                    match link.receive(PATIENCE) {
                        Err(error) => break error,
                        Ok(_) => assert!(start.elapsed() < PATIENCE, "it hangs"),
                    }
                }
            });
            peer.kill();
            waiting.join().unwrap();
        });
        assert!(!link.said_goodbye());
        link.close().unwrap();
        assert_eq!(census.total(), 0);
    }
}
