//! Memory of applications: slices of chunks that the agent registered before they were asked for.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

use catchment_agent::policy::Policy;
use catchment_agent::protocol::{self, Account, Reply, Request, VERSION};
use catchment_agent::{Agent, status};
use catchment_conformance::{ALL, Options, Side, connected, eventually, exchange_options};
use catchment_probe::child::{Child, hear, role, say};
use catchment_probe::load::scaled;
use catchment_provider_shm::seqpacket;
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::{
    Access, Context, Mr, QpTransition, RemoteAddr, RtrAttr, SendOp, Sge, WcStatus,
};
use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use suite::{ROCE, open, two_agents};

const PAGE: u64 = 4096;

/// An agent over RoCEv2 whose chunks have so many bytes, and its name. Tests of a process tell chunks apart by their length.
fn agent(name: &str, chunk: u64) -> (Agent, String) {
    let name = format!("{name}-{}", std::process::id());
    let policy = serde_json::json!({
        "name": name, "device": {"roce": "127.0.0.1"},
        "memory_chunks": {"bytes": chunk, "ahead": 1},
        "applications": [{"name": "good"}, {"name": "bad", "memory_bytes": 8 * chunk}]
    });
    (Agent::start(Policy::parse(&policy.to_string()).unwrap()).unwrap(), name)
}

fn account(agent: &str, application: &str) -> Account {
    let all = status(agent).unwrap();
    all.into_iter().find(|account| account.application == application).unwrap()
}

/// What is told of memory after this; the engine hears of it a moment later.
fn counted(agent: &str, application: &str, chunks: u64, bytes: u64) -> Account {
    eventually("the account", || {
        let seen = account(agent, application);
        (seen.memory_chunks, seen.memory_bytes) == (chunks, bytes)
    });
    account(agent, application)
}

/// Mappings and descriptors of this process of memory of so many bytes.
fn held(bytes: u64) -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let length = |line: &str| {
        let (range, _) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let at = |hex| u64::from_str_radix(hex, 16).ok();
        Some(at(end)? - at(start)?)
    };
    let maps = maps.lines().filter(|line| line.contains("memfd:"));
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let lengths = all.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    (
        maps.filter(|line| length(line) == Some(bytes)).count(),
        lengths.filter(|file| file.is_file() && file.len() == bytes).count(),
    )
}

/// S5.4: what is registered at the device for regions of applications.
#[test]
fn s5_4_regions_in_memory_chunks_register_nothing() {
    const CHUNK: u64 = 1 << 20;
    let (_agent, name) = agent("nothing", CHUNK);
    let context = open(&name, "good");
    let pd = context.alloc_pd().unwrap();
    let lengths = [1, 63, 64, 65, 4095, 4096, 4097, 20_000];
    let mut regions: Vec<Arc<dyn Mr>> = Vec::new();
    for round in 0..30 {
        for bytes in lengths {
            regions.push(pd.alloc_mr(bytes + round, ALL).unwrap());
        }
    }
    let mut ranges: Vec<(u64, u64)> =
        regions.iter().map(|mr| (mr.addr(), mr.addr() + mr.bytes() as u64)).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0), "regions overlap");
    let keys: BTreeSet<u32> = regions.iter().map(|mr| mr.rkey()).collect();
    assert_eq!(keys.len(), regions.len());
    assert_eq!(counted(&name, "good", 2, 2 * CHUNK).registrations, 0);
    let own = Region::alloc(5000, RegionOptions::default()).unwrap();
    let own = pd.reg_mr(own, ALL).unwrap();
    assert_eq!(counted(&name, "good", 2, 2 * CHUNK + 5000).registrations, 1);
    drop(own);
    counted(&name, "good", 2, 2 * CHUNK);
    regions.clear();
    // One of them is kept for the next region.
    assert_eq!(counted(&name, "good", 1, CHUNK).registrations, 1);
}

/// S5.4, where connections share queue pairs.
#[test]
fn s5_4_nor_do_those_of_shared_queue_pairs() {
    let (_agents, names) = two_agents("slices", ROCE, 20);
    let (here, there) = (open(&names[0], "suite"), open(&names[1], "suite"));
    let options = exchange_options();
    let connect = |_| connected((here.clone(), &options), (there.clone(), &options));
    let mut pairs: Vec<(Side, Side)> = (0..8).map(connect).collect();
    let strays = catchment_conformance::exchange(&mut pairs, 2000, |_| {});
    assert_eq!((strays.misrouted, strays.lost), (0, 0));
    for name in &names {
        let seen = account(name, "suite");
        assert_eq!((seen.registrations, seen.memory_chunks), (0, 1));
    }
}

/// Bounds and rights of each slice are its own, although its neighbours are in the same registration.
#[test]
fn a_slice_gives_no_right_to_its_neighbours() {
    let (_agent, name) = agent("neighbours", 2 << 20);
    let (mine, options) =
        (open(&name, "good"), Options { bytes: PAGE as usize, ..Options::default() });
    let sides = || {
        let (mut a, b) = connected((open(&name, "good"), &options), (mine.clone(), &options));
        a.put(0, b"an intruder");
        let sge = [a.sge(0, 8)];
        a.run_ok(SendOp::Write(b.remote(0)), &sge);
        assert_eq!(b.get(0, 8), b"an intru");
        (a, b)
    };
    let near = |a: &dyn Mr, b: &dyn Mr| a.addr().abs_diff(b.addr()) < 2 << 20;
    for access in [ALL, Access::LOCAL_WRITE, Access::REMOTE_READ] {
        let (mut a, b) = sides();
        let hidden = b.pd.alloc_mr(PAGE as usize, access).unwrap();
        assert!(near(&*hidden, &*b.mr), "one chunk has both");
        hidden.region().whole().fill(7).unwrap();
        // The key of a region of which the peer was told, the address of one of which it was not.
        let to = RemoteAddr { addr: hidden.addr(), rkey: b.mr.rkey() };
        let sge = [a.sge(0, 8)];
        assert_eq!(a.run_failing(SendOp::Write(to), &sge), WcStatus::RemoteAccess);
        assert_eq!(hidden.region().whole().to_vec(), vec![7; PAGE as usize]);
    }
    // The end of a slice is one, too.
    let (mut a, b) = sides();
    let sge = [a.sge(0, 8)];
    let end = b.remote(PAGE as usize - 4);
    assert_eq!(a.run_failing(SendOp::Write(end), &sge), WcStatus::RemoteAccess);
    // And so are rights and bounds of what is sent.
    let (mut a, b) = sides();
    let other = a.pd.alloc_mr(64, Access::LOCAL_WRITE).unwrap();
    let foreign = [Sge { addr: other.addr(), bytes: 8, lkey: a.mr.lkey() }];
    assert_eq!(a.run_failing(SendOp::Write(b.remote(0)), &foreign), WcStatus::LocalProtection);
}

/// What a chunk was used for is never found by anybody else.
#[test]
fn a_chunk_is_given_to_one_application_only() {
    const CHUNK: u64 = 7 * 65_536;
    let (_agent, name) = agent("inodes", CHUNK);
    let mut seen = BTreeSet::new();
    for _ in 0..scaled(20) {
        let (_socket, _, chunk) = chunk_of(&name, "good", 1);
        let file = std::fs::File::from(chunk.try_clone().unwrap());
        let facts = file.metadata().unwrap();
        assert_eq!((facts.len(), facts.blocks()), (CHUNK, 0), "pages that somebody touched");
        assert!(seen.insert(facts.ino()), "a chunk came again");
        let memory = Region::from_peer(chunk, CHUNK as usize, true).unwrap();
        memory.whole().fill(0xa5).unwrap();
    }
    eventually("one chunk that is ready", || held(CHUNK).0 == 1);
}

/// Joins by hand, and asks for a chunk.
fn chunk_of(agent: &str, application: &str, bytes: u64) -> (OwnedFd, u32, OwnedFd) {
    let socket = join(agent, application);
    let (reply, mut descriptors) = ask(&socket, &Request::Chunk { bytes });
    let Reply::Chunk { chunk, .. } = reply else { panic!("{reply:?}") };
    (socket, chunk, descriptors.pop().unwrap())
}

fn join(agent: &str, application: &str) -> OwnedFd {
    let soon = Instant::now() + Duration::from_secs(60);
    let socket = seqpacket::connect(&protocol::address(agent).unwrap(), soon).unwrap();
    let hello = Request::Hello { version: VERSION, application: application.to_owned() };
    assert!(matches!(ask(&socket, &hello).0, Reply::Welcome(_)));
    socket
}

fn ask(socket: &OwnedFd, request: &Request) -> (Reply, Vec<OwnedFd>) {
    protocol::send(socket.as_fd(), request, &[]).unwrap();
    let soon = Instant::now() + Duration::from_secs(60);
    protocol::receive(socket.as_fd(), protocol::REPLY_BYTES, soon).unwrap().unwrap()
}

fn refusal(socket: &OwnedFd, request: &Request) -> String {
    match ask(socket, request) {
        (Reply::Refused { reason }, _) => reason,
        other => panic!("{request:?}: {other:?}"),
    }
}

/// Who asks for more than the policy or the protocol allows is told so, and harms nobody.
#[test]
fn an_application_that_asks_for_everything_harms_itself_only() {
    const CHUNK: u64 = 9 * 65_536;
    let (_agent, name) = agent("greedy", CHUNK);
    let (mut a, b) = connected(
        (open(&name, "good"), &Options::default()),
        (open(&name, "good"), &Options::default()),
    );
    let (socket, chunk, _fd) = chunk_of(&name, "bad", 1);
    let Reply::Pd { pd } = ask(&socket, &Request::AllocPd).0 else { panic!("no domain") };
    let bind = |chunk, offset, bytes| {
        let access = ALL.bits();
        Request::Bind { pd, chunk, offset, bytes, access, again: false }
    };
    for (request, said) in [
        (bind(chunk + 1, 0, 64), "no such memory chunk"),
        (bind(chunk, CHUNK - 63, 64), "are not in a memory chunk"),
        (bind(chunk, u64::MAX, 64), "are not in a memory chunk"),
        (bind(chunk, 0, 0), "at least one byte"),
        (Request::Chunk { bytes: 0 }, "at least one byte"),
        (Request::Chunk { bytes: u64::MAX }, "that the policy allows"),
        (Request::Chunk { bytes: 7 * CHUNK + 1 }, "that the policy allows"),
        (Request::DropChunk { chunk: chunk + 1 }, "no such memory chunk"),
    ] {
        let reason = refusal(&socket, &request);
        assert!(reason.contains(said), "{request:?}: {reason}");
    }
    // Of a million, as many as it may have; the others are refused one by one.
    let mut made = 0;
    for n in 0..scaled(10_000) {
        let reply = ask(&socket, &bind(chunk, n % (CHUNK / 64) * 64, 64)).0;
        if matches!(reply, Reply::Region { .. }) {
            made += 1;
            continue;
        }
        let Reply::Refused { reason } = reply else { panic!("{reply:?}") };
        assert!(reason.contains("at most 4096 regions"), "{reason}");
    }
    assert_eq!(made, scaled(10_000).min(4096));
    let reason = refusal(&socket, &Request::DropChunk { chunk });
    assert!(reason.contains("regions"), "{reason}");
    // All the chunks that it may have.
    let mut all = CHUNK;
    let reason = loop {
        let reply = ask(&socket, &Request::Chunk { bytes: 1 }).0;
        if let Reply::Chunk { bytes, .. } = reply {
            all += bytes;
            continue;
        }
        let Reply::Refused { reason } = reply else { panic!("{reply:?}") };
        break reason;
    };
    assert!(reason.contains("that the policy allows") || reason.contains("left"), "{reason}");
    assert_eq!(all, 8 * CHUNK);
    a.put(0, b"as before");
    let sge = [a.sge(0, 9)];
    a.run_ok(SendOp::Write(b.remote(0)), &sge);
    assert_eq!(b.get(0, 9), b"as before");
    drop(socket);
    let gone = || status(&name).unwrap().iter().all(|one| one.application == "good");
    eventually("its end", gone);
}

/// S5.4: what is given back is zero when it comes again, a region longer than a chunk has one of its own, and a region outlives
/// its application's connection.
#[test]
fn memory_comes_back_as_it_was_given() {
    const CHUNK: u64 = 11 * 65_536;
    let (_agent, name) = agent("again", CHUNK);
    let context = open(&name, "good");
    let pd = context.alloc_pd().unwrap();
    let first = pd.alloc_mr(10_000, ALL).unwrap();
    first.region().whole().fill(0xee).unwrap();
    let at = first.region().addr();
    drop(first);
    let again = pd.alloc_mr(9_000, ALL).unwrap();
    assert_eq!(again.region().addr(), at, "the place is used again");
    assert!(again.region().whole().to_vec().iter().all(|byte| *byte == 0));
    counted(&name, "good", 1, CHUNK);
    let long = pd.alloc_mr(CHUNK as usize + 1, ALL).unwrap();
    long.region().slice(CHUNK as usize, 1).unwrap().fill(1).unwrap();
    assert_eq!(counted(&name, "good", 2, 2 * CHUNK + PAGE).registrations, 0);
    drop(long);
    counted(&name, "good", 1, CHUNK);
    // Another protection domain gets another key for the same bytes.
    let other = context.alloc_pd().unwrap();
    let twice = other.reg_mr(Arc::clone(again.region()), Access::LOCAL_WRITE).unwrap();
    assert_ne!(twice.lkey(), again.lkey());
    assert_eq!((twice.addr(), account(&name, "good").registrations), (again.addr(), 0));
    let kept = Arc::clone(again.region());
    kept.whole().fill(9).unwrap();
    drop((twice, again, pd, other, context));
    eventually("its end", || status(&name).unwrap().is_empty());
    assert!(kept.whole().to_vec().iter().all(|byte| *byte == 9));
}

/// A chunk that is kept for the next region is no reason to refuse one.
#[test]
fn an_application_may_have_all_that_the_policy_allows() {
    const CHUNK: u64 = 17 * 65_536;
    let (_agent, name) = agent("all", CHUNK);
    let pd = open(&name, "bad").alloc_pd().unwrap();
    let all = 8 * CHUNK as usize;
    for _ in 0..2 {
        drop(pd.alloc_mr(64, ALL).unwrap());
        counted(&name, "bad", 1, CHUNK);
        drop(pd.alloc_mr(all, ALL).unwrap());
        drop(pd.alloc_mr(64, ALL).unwrap());
        let own = Region::alloc(all, RegionOptions::default()).unwrap();
        drop(pd.reg_mr(own, ALL).unwrap());
        let refused = pd.alloc_mr(all + 1, ALL).err().unwrap().to_string();
        assert!(refused.contains("that the policy allows"), "{refused}");
    }
}

/// A receive that is posted when its region ends: what comes late is not found in the next region.
#[test]
fn requests_under_way_keep_the_bytes_of_a_region_that_ended() {
    let (_agent, name) = agent("late", 3 << 20);
    let options = Options { bytes: 64, ..Options::default() };
    let mut a = Side::new(open(&name, "good"), &options);
    let mut b = Side::new(open(&name, "good"), &options);
    let target = b.pd.alloc_mr(PAGE as usize, Access::LOCAL_WRITE).unwrap();
    let (at, region) = (target.addr(), Arc::downgrade(target.region()));
    b.init(&options);
    b.post_recv(1, &[Sge { addr: at, bytes: 64, lkey: target.lkey() }]);
    let (ours, theirs) = (a.qp.endpoint(), b.qp.endpoint());
    b.qp.modify(QpTransition::ToRtr(RtrAttr::new(ours))).unwrap();
    b.qp.modify(QpTransition::ToRts(options.rts)).unwrap();
    a.connect(theirs, &options);
    drop(target);
    assert!(region.upgrade().is_none(), "the application has let go of it");
    let next = b.pd.alloc_mr(PAGE as usize, Access::LOCAL_WRITE).unwrap();
    assert_ne!(next.addr(), at, "the receive still names those bytes");
    a.put(0, &[5; 64]);
    let sge = [a.sge(0, 64)];
    a.run_ok(SendOp::Send, &sge);
    assert!(next.region().whole().to_vec().iter().all(|byte| *byte == 0));
    // A queue pair may keep what its last request names.
    let (pd, _before) = (Arc::clone(&b.pd), Arc::clone(&b.mr));
    drop((a, b));
    eventually("the bytes are free", || {
        pd.alloc_mr(PAGE as usize, Access::LOCAL_WRITE).unwrap().addr() == at
    });
}

#[test]
fn second_process() {
    let Some(role) = role() else { return };
    let (agent, bytes) = role.split_once(' ').unwrap();
    let context: Arc<dyn Context> = open(agent, "good");
    let pd = context.alloc_pd().unwrap();
    let chunk: usize = bytes.parse().unwrap();
    let lengths = [64, chunk / 2, chunk, 2 * chunk, 4096];
    let _regions: Vec<_> = lengths.map(|bytes| pd.alloc_mr(bytes, ALL).unwrap()).into();
    say("has them");
    hear();
}

/// `kill -9` of an application leaves no memory, and the pool is full again.
#[test]
fn a_killed_application_leaves_no_memory() {
    const CHUNK: u64 = 13 * 65_536;
    let (_agent, name) = agent("killed", CHUNK);
    eventually("one chunk that is ready", || held(CHUNK) == (1, 1));
    for _ in 0..3 {
        let mut child = Child::start("second_process", &format!("{name} {CHUNK}"));
        assert_eq!(child.hear(), "has them");
        let seen = account(&name, "good");
        assert!(seen.memory_chunks >= 3, "{seen:?}");
        assert_eq!(held(2 * CHUNK).0, 1);
        child.kill();
        eventually("its end", || status(&name).unwrap().is_empty());
        eventually("nothing of it, and one that is ready", || {
            held(CHUNK) == (1, 1) && held(2 * CHUNK) == (0, 0)
        });
    }
}
