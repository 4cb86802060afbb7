//! `kill -9` of either end: the other gets an error, gives everything back, and does not hang.
use super::talk::{answer, ask};
use super::*;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What the child is: `server PROVIDER`, or `client PROVIDER ADDRESS`.
const ROLE: &str = "CATCHMENT_TEST_DUPLEX_CHILD";

fn opener(provider: &str) -> Opener {
    match provider {
        "shm" => shm(),
        "roce" => roce(),
        other => panic!("{other}"),
    }
}

struct Peer {
    child: Child,
    // Kept open: the child waits on it.
    _stdin: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn spawn(role: &str) -> Peer {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "death::peer_process"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Peer {
            _stdin: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// The rest of the line that has this word: the harness prints in front of it.
    fn says(&mut self, word: &str) -> String {
        let lines = self.lines.by_ref().map(|line| line.unwrap());
        let mut ours = lines.filter_map(|l| Some(l[l.find(word)? + word.len()..].to_owned()));
        ours.next().expect("the child says it")
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Not a test by itself: the end that gets killed.
#[test]
fn peer_process() {
    let Ok(role) = env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    let (open, options) = (opener(words[1]), options(4, 64, "child"));
    let mut out = std::io::stdout();
    if words[0] == "server" {
        let served = serve(open(), &options, |_, link: &mut Link| answer(link, 64));
        writeln!(out, "address {}", served.address).unwrap();
        std::thread::park();
    }
    let mut link = connect(words[2].parse().unwrap(), open(), &options).unwrap();
    ask(&mut link, 9, 64, 5, 2);
    writeln!(out, "talked").unwrap();
    std::thread::park();
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
