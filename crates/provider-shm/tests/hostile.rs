//! Peers that send arbitrary data to the service thread. It keeps answering others.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod raw;

use catchment_conformance::{Bench, Options, Side, connected, eventually, wait_one};
use catchment_probe::child::{Child, MARK, hear, role, say};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Access, Context, Cq, Endpoint, Gid, Mr, Payload, Qp, QpInit, QpState, QpTransition, RemoteAddr,
    RtrAttr, RtsAttr, SendOp, SendWr,
};
use raw::{HELLO, OPEN_QP, REFUSED, RESOLVE, Socket, TABLES, TOO_MANY};
use rustix::process::{Resource, Rlimit};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The tests count the descriptors of the process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn bench() -> Bench {
    Bench::new(Arc::new(ShmProvider::new()), "shm0")
}

/// A good pair that uses the context connects and works.
fn assert_serves(bench: &Bench, context: &Arc<dyn Context>) {
    let options = Options::default();
    let (mut a, b) = connected((bench.open(), &options), (context.clone(), &options));
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The second process of a test does its work here; nothing in the first.
#[test]
fn second_process() {
    match role().as_deref() {
        Some("flood") => flood(),
        Some("starving") => starve(),
        Some("source") => be_source(),
        _ => {}
    }
}

/// Opens connections, says Hello in each, and keeps all that are let in.
fn flood() {
    let (held, refused) = flood_with_hellos(hear().parse().unwrap());
    say(&format!("{} {refused}", held.len()));
    hear();
}

fn flood_with_hellos(theirs: u128) -> (Vec<Socket>, u32) {
    let (mut held, mut refused) = (Vec::new(), 0);
    for n in 0..5000u128 {
        let socket = Socket::dial(theirs.to_le_bytes());
        let answer = socket.hello(n.to_le_bytes(), theirs.to_le_bytes()).expect("an answer");
        match (answer.kind, answer.u32(8)) {
            (TABLES, _) => held.push(socket),
            (REFUSED, TOO_MANY) => refused += 1,
            other => panic!("{other:?}"),
        }
        if refused == 500 {
            break;
        }
    }
    (held, refused)
}

/// Set for the collector in a PID namespace of its own.
const CONTAINED: &str = "CATCHMENT_SHM_CONTAINED";

#[test]
fn contained_process() {
    if std::env::var(CONTAINED).is_err() {
        return;
    }
    assert!(std::process::id() < 10, "a namespace of its own");
    let bench = bench();
    let context = bench.open();
    assert_serves(&bench, &context);
    let before = descriptors();
    say(&u128::from_le_bytes(context.gid().0).to_string());
    hear();
    assert_serves(&bench, &context);
    say("served");
    eventually("descriptors are back", || descriptors() <= before);
    say("back");
}

/// For a collector in a container, processes outside of it have no number that tells them apart.
#[test]
fn issue_13_a_flood_from_another_pid_namespace_is_limited_too() {
    let _turn = TURN.lock();
    let namespaces = ["--user", "--pid", "--fork", "--kill-child"];
    let can = Command::new("unshare").args(namespaces).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("no PID namespace can be made here: not tried");
        return;
    }
    let mut collector = Command::new("unshare");
    collector.args(namespaces).arg(std::env::current_exe().unwrap());
    collector.args(["contained_process", "--nocapture", "--test-threads=1"]).env(CONTAINED, "1");
    collector.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut collector = collector.spawn().unwrap();
    let lines = BufReader::new(collector.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut says = lines.filter_map(|line| line.strip_prefix(MARK).map(str::to_owned));
    let (held, _refused) = flood_with_hellos(says.next().unwrap().parse().unwrap());
    let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap();
    assert_eq!(held.len() as u64, (most / 8).min(5000), "let in");
    let mut input = collector.stdin.take().unwrap();
    writeln!(input, "flooded").unwrap();
    assert_eq!(says.next().unwrap(), "served");
    drop(held);
    assert_eq!(says.next().unwrap(), "back");
    assert!(collector.wait().unwrap().success());
}

/// 20,000 connections of one process, each with a right Hello, took the page and all sessions with them.
#[test]
fn issue_13_a_flood_of_hellos_is_refused_by_name_and_given_back() {
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let options = Options::default();
    let (mut a, b) = connected((bench.open(), &options), (context.clone(), &options));
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
    let before = descriptors();
    let mut flood = Child::start("second_process", "flood");
    let (flooded, ring) = (AtomicBool::new(false), b.remote(0));
    let a = &mut a;
    let counts = std::thread::scope(|scope| {
        // The old session goes on all the time.
        scope.spawn(|| {
            while !flooded.load(Ordering::Relaxed) {
                a.run_ok(SendOp::Write(ring), &[a.sge(0, 8)]);
            }
        });
        let counts = flood.ask(&u128::from_le_bytes(context.gid().0).to_string());
        flooded.store(true, Ordering::Relaxed);
        counts
    });
    let (held, refused) = counts.split_once(' ').unwrap();
    let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap();
    assert_eq!(held.parse::<u64>().unwrap(), (most / 16).min(1024), "let in");
    assert_eq!(refused, "500");
    assert!(descriptors() <= before + 1024 + 256);
    // There is room for others.
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
    assert_serves(&bench, &context);
    drop(flood);
    eventually("descriptors are back", || descriptors() <= before);
}

/// Leaves room for no more descriptors, or for as many as before.
fn limit_descriptors(most: u64) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(most), maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
}

fn ends(sides: &[Side]) -> String {
    sides.iter().map(|side| side.qp.endpoint().to_string()).collect::<Vec<_>>().join(" ")
}

fn read_ends(line: &str) -> Vec<Endpoint> {
    line.split(' ').map(|end| end.parse().unwrap()).collect()
}

/// Connects the second queue pair, which may fail.
fn try_rtr(side: &mut Side, peer: Endpoint) -> String {
    let result = side.qp.modify(QpTransition::ToRtr(RtrAttr::new(peer)));
    result.map_or_else(|error| error.to_string(), |()| "connected".into())
}

/// A process that connects its first queue pair, and then has no descriptor left.
fn starve() {
    let (bench, options) = (bench(), Options::default());
    let context = bench.open();
    let mut sides = [Side::new(context.clone(), &options), Side::new(context, &options)];
    say(&ends(&sides));
    let peers = read_ends(&hear());
    sides[0].connect(peers[0], &options);
    sides[1].init(&options);
    say("connected");
    hear();
    let before = rustix::process::getrlimit(Resource::Nofile).current.unwrap();
    limit_descriptors(descriptors() as u64 + 10);
    let held: Vec<_> = std::iter::from_fn(|| rustix::io::dup(std::io::stdin()).ok()).collect();
    say(&try_rtr(&mut sides[1], peers[1]));
    hear();
    drop(held);
    limit_descriptors(before);
    say(&try_rtr(&mut sides[1], peers[1]));
    hear();
}

/// A process without descriptors was said to answer nonsense.
#[test]
fn issue_13_a_process_without_descriptors_is_said_to_have_none() {
    let _turn = TURN.lock();
    let (bench, options) = (bench(), Options::default());
    let mut sides = [Side::new(bench.open(), &options), Side::new(bench.open(), &options)];
    let mut child = Child::start("second_process", "starving");
    let peers = read_ends(&child.hear());
    child.tell(&ends(&sides));
    sides[1].init(&options);
    child.says("connected");
    sides[0].connect(peers[0], &options);
    let theirs = child.ask("starve");
    assert!(theirs.contains("this process has no file descriptor left"), "{theirs}");
    let ours = try_rtr(&mut sides[1], peers[1]);
    assert!(ours.contains("its process has no file descriptor left"), "{ours}");
    // What was connected before works, and what was refused can be done once there are descriptors.
    let sge = sides[0].sge(0, 8);
    sides[0].post_recv(1, &[sge]);
    assert_eq!(sides[0].qp.state(), QpState::Rts);
    child.tell("more");
    child.says("connected");
    assert_eq!(try_rtr(&mut sides[1], peers[1]), "connected");
    child.tell("end");
}

/// A collector that was updated and a source that was not, or the other way.
#[test]
fn a_peer_of_another_version_is_told_both() {
    let _turn = TURN.lock();
    let gid = u128::from(std::process::id()).to_le_bytes();
    let listener = raw::listen(gid);
    let older = std::thread::spawn(move || {
        let socket = Socket::accept(&listener);
        socket.receive().unwrap();
        let mut refused = raw::message(REFUSED, &5u32.to_le_bytes());
        refused[4] = 3;
        socket.send_bytes(&refused, &[]);
    });
    let mut side = Side::new(bench().open(), &Options::default());
    side.init(&Options::default());
    let told = try_rtr(&mut side, Endpoint { gid: Gid(gid), qpn: 9, psn: 0, net: None });
    assert!(told.contains("version 3 of") && told.contains("process version 4"), "{told}");
    older.join().unwrap();
}

/// Sources of sessions, each in a process of its own, as `catchment send` does it.
const SOURCES: usize = 10;

/// A queue pair and memory as sessions have them: without channels, and without receives.
struct Lean {
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
}

impl Lean {
    fn new(context: &dyn Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let mut qp =
            pd.create_qp(QpInit { max_inline_bytes: 64, ..QpInit::rc(&cq, 16, 0) }).unwrap();
        qp.modify(QpTransition::ToInit { access: Access::REMOTE }).unwrap();
        Self { qp, cq, mr: pd.alloc_mr(1 << 16, catchment_conformance::ALL).unwrap() }
    }

    fn connect(&mut self, peer: Endpoint) {
        self.qp.modify(QpTransition::ToRtr(RtrAttr::new(peer))).unwrap();
        self.qp.modify(QpTransition::ToRts(RtsAttr::default())).unwrap();
    }
}

/// Connects, and writes into the ring of the collector.
fn be_source() {
    let context = bench().open();
    let before = descriptors();
    let mut link = Lean::new(&*context);
    say(&link.qp.endpoint().to_string());
    let line = hear();
    let fields: Vec<&str> = line.split(' ').collect();
    link.connect(fields[0].parse().unwrap());
    let (addr, rkey) = (fields[1].parse().unwrap(), fields[2].parse().unwrap());
    let write = SendOp::Write(RemoteAddr { addr, rkey });
    link.qp.post_send(&[SendWr::new(1, write, Payload::Inline(&[1]))]).unwrap();
    wait_one(&*link.cq).result.unwrap();
    link.qp.watch_remote(rkey).unwrap().arm();
    // The connection of the collector that came first is closed a little later.
    eventually("three descriptors", || descriptors() <= before + 3);
    say("connected");
    hear();
}

/// With its control connection, a session takes four descriptors at each side.
#[test]
fn a_session_takes_three_descriptors_at_each_side() {
    let _turn = TURN.lock();
    let context = bench().open();
    let mut sources: Vec<_> =
        (0..SOURCES).map(|_| Child::start("second_process", "source")).collect();
    let peers: Vec<Endpoint> = sources.iter_mut().map(|s| s.hear().parse().unwrap()).collect();
    let before = descriptors();
    let mut rings = Vec::new();
    for (source, peer) in sources.iter_mut().zip(peers) {
        let mut ring = Lean::new(&*context);
        ring.connect(peer);
        ring.mr.watch().unwrap().arm();
        let (end, mr) = (ring.qp.endpoint(), &ring.mr);
        assert_eq!(source.ask(&format!("{end} {} {}", mr.addr(), mr.rkey())), "connected");
        rings.push(ring);
    }
    eventually("three descriptors for each", || descriptors() <= before + 3 * SOURCES);
}

/// Another process of this user, which sees all sockets and has no session.
#[test]
fn a_stranger_finds_no_gid_and_is_let_in_nowhere() {
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&context.gid().to_string()));
    let name = raw::name(context.gid().0);
    assert!(sockets.contains(&name), "everyone sees the name");
    let answer = Socket::dial_name(&name).hello([7; 16], [7; 16]);
    assert!(answer.is_none(), "a stranger is answered");
    assert_serves(&bench, &context);
}

#[test]
fn any_bytes_and_descriptors_are_survived() {
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    assert_serves(&bench, &context);
    let before = descriptors();
    for round in 0..200u64 {
        let socket = Socket::dial(context.gid().0);
        let own = vec![socket.0.as_fd(); 16];
        let noise = catchment_conformance::pattern(round, (round * 7 % 200) as usize);
        if round % 2 == 0 {
            let ours = [round as u8; 16];
            socket.send(HELLO, &[ours, context.gid().0].concat(), &[]);
        }
        match round % 5 {
            0 => socket.send_bytes(&noise, &[]),
            1 => socket.send((round % 9) as u16, &noise[..noise.len().min(56)], &[]),
            // More descriptors than any message has, or some that do not belong there.
            2 => socket.send(HELLO, &noise[..noise.len().min(16)], &own),
            3 => socket.send(RESOLVE, &[0; 8], &own[..2]),
            _ => socket.send(OPEN_QP, &[0xff; 40], &own[..3]),
        };
        if round % 20 == 0 {
            assert_serves(&bench, &context);
        }
    }
    assert_serves(&bench, &context);
    // What came with the messages is closed.
    eventually("closing what came", || descriptors() <= before + 2);
}

#[test]
fn a_thousand_silent_connections_stop_nobody() {
    // Two descriptors for each: ours and that of the service thread.
    let most = rustix::process::getrlimit(Resource::Nofile);
    let silent = most.current.map_or(1000, |n| (n / 2).min(1000)) as usize;
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let mut held = Vec::new();
    for n in 0..silent {
        held.push(Socket::dial(context.gid().0));
        if n % 100 == 0 {
            assert_serves(&bench, &context);
        }
    }
    assert_serves(&bench, &context);
    // They are disconnected, and do not count forever.
    for socket in held {
        let told = socket.receive();
        assert!(told.is_none_or(|told| told.kind == REFUSED && socket.receive().is_none()));
    }
}
