//! A second implementation, by docs/spec/shm.md alone, as another process against ours; and the same as an
//! attacker.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod raw;

use catchment_conformance::{Bench, Options, Side, connected, eventually, wait_one};
use catchment_probe::child::{Child, hear, role, say};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Endpoint, Gid, Payload, QpState, RemoteAddr, SendOp, SendWr};
use raw::{
    BELLS_BYTES, HELLO, KNOWN, Memory, Message, OPEN_QP, QP, REGION, RESOLVE, Socket, TABLES,
    VALID_BYTES,
};
use rustix::fs::{FallocateFlags, OFlags};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

const QPN: u32 = 0x12_3456;
const KEY: u32 = 0xabcd_0007;
const SLOT: usize = 7;
/// An address as an owner has it: only a number for the other side.
const ADDRESS: u64 = 0x7000_0000_0000;
const REGION_BYTES: usize = 1 << 16;
const RING_BYTES: usize = 1 << 16;
const RECEIVES: usize = 4;
const RING: usize = (512 + 8 * RECEIVES).next_multiple_of(64);
const INBOX_BYTES: usize = (RING + RING_BYTES).next_multiple_of(4096);
const RIGHTS: u32 = 0b1111;

/// Where the other side is.
struct Peer {
    gid: raw::Gid,
    qpn: u32,
    address: u64,
    key: u32,
}

fn read_card(line: &str) -> Peer {
    let fields: Vec<u128> = line.split(' ').map(|field| field.parse().unwrap()).collect();
    Peer {
        gid: fields[0].to_le_bytes(),
        qpn: fields[1] as u32,
        address: fields[2] as u64,
        key: fields[3] as u32,
    }
}

fn card(gid: raw::Gid, qpn: u32, address: u64, key: u32) -> String {
    format!("{} {qpn} {address} {key}", u128::from_le_bytes(gid))
}

/// A context with one queue pair and one region.
struct Second {
    gid: raw::Gid,
    listener: OwnedFd,
    valid: (Memory, OwnedFd),
    bells: (Memory, OwnedFd),
    inbox: (Memory, OwnedFd),
    region: (Memory, OwnedFd),
    event: OwnedFd,
    /// Its receive channel.
    channel: Option<OwnedFd>,
    /// What it says with its tables: 1 if its threads make the fence of writers.
    says: u32,
}

impl Second {
    fn new() -> Self {
        let mut gid = [0; 16];
        let flags = rustix::rand::GetRandomFlags::empty();
        rustix::rand::getrandom(&mut gid[..], flags).unwrap();
        let second = Self {
            gid,
            listener: raw::listen(gid),
            valid: Memory::create(VALID_BYTES),
            bells: Memory::create(BELLS_BYTES),
            inbox: Memory::create(INBOX_BYTES),
            region: Memory::create(REGION_BYTES),
            event: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap(),
            channel: None,
            says: 0,
        };
        second.valid.0.count(8 * SLOT).store(KEY.into(), Ordering::Release);
        second
    }

    fn facts(&self) -> Vec<u8> {
        let mut facts = [QPN, RIGHTS].map(u32::to_le_bytes).concat();
        facts.extend(99u64.to_le_bytes());
        let channels = u32::from(self.channel.is_some());
        let rest = [RING_BYTES as u32, RECEIVES as u32, 1000, channels];
        facts.extend(rest.map(u32::to_le_bytes).concat());
        facts
    }

    /// Answers what comes over a connection of the peer, until it hangs up.
    fn answer(&self, socket: &Socket, peer: &Peer, mut opened: impl FnMut(Message)) {
        let mut known = false;
        while let Some(message) = socket.receive() {
            match message.kind {
                HELLO => {
                    assert_eq!((message.gid(8), message.gid(24)), (peer.gid, self.gid));
                    known = true;
                    let tables = [self.valid.1.as_fd(), self.bells.1.as_fd()];
                    socket.send(TABLES, &self.says.to_le_bytes(), &tables);
                }
                OPEN_QP => {
                    assert!(known && (message.u32(8), message.u32(12)) == (QPN, peer.qpn));
                    self.inbox.0.word(0).store(1, Ordering::Release);
                    opened(message);
                    let inbox = Some(&self.inbox.1);
                    let all: Vec<_> =
                        inbox.into_iter().chain(&self.channel).map(OwnedFd::as_fd).collect();
                    socket.send(QP, &self.facts(), &all);
                }
                RESOLVE => {
                    assert_eq!((message.u32(8), message.u32(12)), (QPN, KEY));
                    let mut region = ADDRESS.to_le_bytes().to_vec();
                    region.extend((REGION_BYTES as u64).to_le_bytes());
                    region.extend(RIGHTS.to_le_bytes());
                    socket.send(REGION, &region, &[self.region.1.as_fd(), self.event.as_fd()]);
                }
                other => panic!("kind {other}"),
            }
        }
    }
}

/// What was mapped of the other side.
struct Mapped {
    /// The open connection.
    socket: Socket,
    valid: Memory,
    bells: Memory,
    region: Memory,
    event: OwnedFd,
    descriptors: Vec<OwnedFd>,
}

/// Asks the other side for its tables and its region.
fn map(second: &Second, peer: &Peer) -> Mapped {
    let socket = Socket::dial(peer.gid);
    let tables = socket.hello(second.gid, peer.gid).unwrap();
    assert_eq!((tables.kind, tables.u32(8) & !1), (TABLES, 0));
    let request = [&peer.qpn.to_le_bytes()[..], &second.facts()].concat();
    socket.send(OPEN_QP, &request, &[second.inbox.1.as_fd()]);
    let known = socket.receive().unwrap();
    assert_eq!(known.kind, KNOWN, "it connected first");
    socket.send(RESOLVE, &[peer.qpn, peer.key].map(u32::to_le_bytes).concat(), &[]);
    let mut region = socket.receive().unwrap();
    assert_eq!((region.kind, region.u64(8)), (REGION, peer.address));
    let bytes = region.u64(16) as usize;
    let event = region.descriptors.pop().unwrap();
    let mapped = Mapped {
        valid: Memory::of_peer(&tables.descriptors[0], VALID_BYTES, false),
        bells: Memory::of_peer(&tables.descriptors[1], BELLS_BYTES, true),
        region: Memory::of_peer(&region.descriptors[0], bytes, true),
        descriptors: tables.descriptors.into_iter().chain(region.descriptors).collect(),
        event,
        socket,
    };
    let word = mapped.valid.count(8 * (peer.key as usize & 0xffff)).load(Ordering::Acquire);
    assert_eq!(word, u64::from(peer.key), "the key is valid");
    mapped
}

impl Mapped {
    /// WRITE, as section 7 has it.
    fn write(&self, key: u32, offset: usize, data: &[u8]) {
        let (plain, last) = data.split_at(data.len() - 8);
        fence(Ordering::Release);
        self.region.put(offset, plain);
        let last = u64::from_ne_bytes(last.try_into().unwrap());
        self.region.count(offset + plain.len()).store(last, Ordering::Release);
        fence(Ordering::SeqCst);
        let owner = self.bells.word(16 * (key as usize & 0xffff));
        if owner.load(Ordering::Relaxed) != 0 && owner.swap(0, Ordering::AcqRel) != 0 {
            rustix::io::write(&self.event, &1u64.to_ne_bytes()).unwrap();
        }
    }
}

/// Puts a message of one record into a peer's inbox, given what it sent with its request.
fn send(opened: &Message, data: &[u8]) {
    let (ring_bytes, receives) = (opened.u32(12 + 16) as usize, opened.u32(12 + 20) as usize);
    let ring = (512 + 8 * receives).next_multiple_of(64);
    let bytes = (ring + ring_bytes).next_multiple_of(4096);
    let inbox = Memory::of_peer(&opened.descriptors[0], bytes, true);
    assert_eq!(inbox.word(0).load(Ordering::Acquire), 1, "alive");
    assert_eq!(inbox.count(72).load(Ordering::Acquire), 1, "posted");
    assert!(inbox.count(512).load(Ordering::Relaxed) >= data.len() as u64);
    let mut record = vec![0; 32];
    (record[0], record[1]) = (1, 1);
    record[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
    record[16..24].copy_from_slice(&(data.len() as u64).to_le_bytes());
    record.extend(data);
    inbox.put(ring, &record);
    inbox.count(128).store(record.len().next_multiple_of(32) as u64, Ordering::Release);
    fence(Ordering::SeqCst);
    let flag = inbox.word(192);
    if flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::AcqRel) != 0 {
        rustix::io::write(&opened.descriptors[1], &1u64.to_ne_bytes()).unwrap();
    }
}

/// Returns the message that lies in the own inbox.
fn received(second: &Second) -> Vec<u8> {
    let inbox = &second.inbox.0;
    assert_eq!(inbox.count(128).load(Ordering::Acquire), 64);
    let header = inbox.get(RING, 32);
    assert_eq!((header[0], header[1]), (1, 1));
    inbox.get(RING + 32, header[8].into())
}

/// The second process of a test does its work here; nothing in the first.
#[test]
fn second_process() {
    let Some(role) = role() else { return };
    let mut second = Second::new();
    second.says = u32::from(role == "fencing");
    if role == "stuffed" {
        second.channel = Some(full_pipe());
        second.inbox.0.count(512).store(100, Ordering::Relaxed);
        second.inbox.0.count(72).store(1, Ordering::Release);
        second.inbox.0.word(192).store(1, Ordering::Release);
    }
    say(&card(second.gid, QPN, ADDRESS, KEY));
    let peer = read_card(&hear());
    let (sender, opened) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (second, peer) = (&second, &peer);
        scope.spawn(move || {
            let socket = Socket::accept(&second.listener);
            second.answer(&socket, peer, |opened| sender.send(opened).unwrap());
        });
        let opened = opened.recv().unwrap();
        assert_eq!(hear(), "connected");
        if role == "stuffed" {
            hear();
            std::process::exit(0);
        }
        let mapped = map(second, peer);
        match role.as_str() {
            "second" | "fencing" => be_good(second, peer, &mapped, &opened),
            "curious" => be_curious(second, peer, &mapped.socket),
            "deaf" => be_deaf(peer, &mapped.socket),
            "holes" => make_holes(second, &mapped, &opened),
            other => panic!("no role {other}"),
        }
        hear();
        std::process::exit(0);
    });
}

fn be_good(second: &Second, peer: &Peer, mapped: &Mapped, opened: &Message) {
    second.inbox.0.count(512).store(100, Ordering::Relaxed);
    second.inbox.0.count(72).store(1, Ordering::Release);
    // As a thread that sleeps until the region is written.
    let owner_flag = second.bells.0.word(16 * SLOT);
    owner_flag.store(1, Ordering::SeqCst);
    mapped.write(peer.key, 64, b"written by another");
    say("written");
    assert_eq!(hear(), "read");
    say(&String::from_utf8(mapped.region.get(4096, 16)).unwrap());
    assert_eq!(hear(), "look");
    let mut rung = [0; 8];
    assert_eq!(rustix::io::read(&second.event, &mut rung).unwrap(), 8);
    assert_eq!(owner_flag.load(Ordering::SeqCst), 0);
    say(&String::from_utf8(second.region.0.get(80, 16)).unwrap());
    assert_eq!(hear(), "receive");
    say(&String::from_utf8(received(second)).unwrap());
    send(opened, b"a message");
    say("sent");
}

/// A pipe into which nothing more goes, and whose writers wait.
fn full_pipe() -> OwnedFd {
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&write, &[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&write, OFlags::empty()).unwrap();
    std::mem::forget(read);
    write
}

/// Asks the same again and again, and reads each answer.
fn be_curious(second: &Second, peer: &Peer, socket: &Socket) {
    let inbox = second.inbox.1.as_fd();
    for _ in 0..500 {
        socket.send(RESOLVE, &[peer.qpn, peer.key].map(u32::to_le_bytes).concat(), &[]);
        assert_eq!(socket.receive().unwrap().descriptors.len(), 2);
        let request = [&peer.qpn.to_le_bytes()[..], &second.facts()].concat();
        socket.send(OPEN_QP, &request, &[inbox]);
        assert_eq!(socket.receive().unwrap().kind, KNOWN);
    }
    say("asked");
}

/// Asks and reads no answer: each is two descriptors on their way.
fn be_deaf(peer: &Peer, socket: &Socket) {
    let request = [peer.qpn, peer.key].map(u32::to_le_bytes).concat();
    let asked = (0..1000).take_while(|_| socket.send(RESOLVE, &request, &[])).count();
    let answers = std::iter::from_fn(|| socket.receive()).count();
    say(&format!("{asked} {answers}"));
}

/// Takes away what can be taken away of all memory between both processes.
fn make_holes(second: &Second, mapped: &Mapped, opened: &Message) {
    let own = [&second.valid.1, &second.bells.1, &second.inbox.1, &second.region.1];
    let all = mapped.descriptors.iter().chain([&opened.descriptors[0]]).chain(own);
    hear();
    let _held = strict().then(promise_everything);
    let mut holes = 0;
    for fd in all {
        assert!(rustix::fs::ftruncate(fd, 4096).is_err());
        let bytes = rustix::fs::fstat(fd).unwrap().st_size as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        holes += u32::from(rustix::fs::fallocate(fd, flags, 0, bytes).is_ok());
    }
    say(&holes.to_string());
    hear();
}

/// Whether the system promises no more memory than it has, so that a hole may find no page.
fn strict() -> bool {
    std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap().trim() == "2"
}

/// Takes all memory that the system still promises. Not by mapping it: who has much mapped is promised less.
fn promise_everything() -> OwnedFd {
    let fd = rustix::fs::memfd_create("all", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (mut at, mut bytes) = (0, 1u64 << 28);
    while bytes >= 4096 {
        match rustix::fs::fallocate(&fd, FallocateFlags::empty(), at, bytes) {
            Ok(()) => at += bytes,
            Err(_) => bytes /= 2,
        }
    }
    fd
}

/// Starts a second implementation in this role, and connects a queue pair with it.
fn join(context: &Arc<dyn catchment_verbs::Context>, role: &str) -> (Side, Child, Peer) {
    let options = Options::default();
    let mut child = Child::start("second_process", role);
    let peer = read_card(&child.hear());
    let mut side = Side::new(context.clone(), &options);
    let (end, memory) = (side.qp.endpoint(), side.remote(0));
    child.tell(&card(end.gid.0, end.qpn, memory.addr, memory.rkey));
    side.connect(Endpoint { gid: Gid(peer.gid), qpn: peer.qpn, psn: 0, net: None }, &options);
    child.tell("connected");
    (side, child, peer)
}

/// A test counts the descriptors of the process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn bench() -> Bench {
    Bench::new(Arc::new(ShmProvider::new()), "shm0")
}

#[test]
fn a_second_implementation_writes_reads_and_sends() {
    talk_to("second");
}

/// Its writers need no fence of their own. The peer before knows nothing of that.
#[test]
fn a_second_implementation_that_fences_for_its_writers_is_rung() {
    talk_to("fencing");
}

fn talk_to(role: &'static str) {
    let _turn = TURN.lock();
    let (mut side, mut child, peer) = {
        let context = bench().open();
        join(&context, role)
    };
    child.says("written");
    assert_eq!(side.get(64, 18), b"written by another");
    side.put(4096, b"ours to be read!");
    assert_eq!(child.ask("read"), "ours to be read!");
    let remote = RemoteAddr { addr: peer.address + 80, rkey: peer.key };
    side.run_ok(SendOp::Write(remote), &[side.sge(4096, 16)]);
    assert_eq!(child.ask("look"), "ours to be read!");
    side.run_ok(SendOp::Read(remote), &[side.sge(8192, 16)]);
    assert_eq!(side.get(8192, 16), b"ours to be read!");
    side.post_recv(1, &[side.sge(0, 64)]);
    side.run_ok(SendOp::Send, &[side.sge(4096, 16)]);
    assert_eq!(child.ask("receive"), "ours to be read!");
    child.says("sent");
    assert_eq!(wait_one(&*side.recv_cq).result.unwrap().bytes, 9);
    assert_eq!(side.get(0, 9), b"a message");
    child.kill();
    eventually("the error state", || side.qp.state() == QpState::Err);
}

/// A peer whose doorbell is a full pipe held the thread that rang it.
#[test]
fn who_rings_a_peer_does_not_wait_for_it() {
    let _turn = TURN.lock();
    let context = bench().open();
    let (mut side, _child, _) = join(&context, "stuffed");
    side.run_ok(SendOp::Send, &[side.sge(0, 16)]);
}

/// A region has one watch, and a queue pair one inbox, however often a peer asks.
#[test]
fn issue_13_asking_often_takes_nothing() {
    let _turn = TURN.lock();
    let context = bench().open();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    let (_side, mut child, _) = join(&context, "curious");
    child.says("asked");
    // Pipes of the second process, what a side has, a connection in each direction, a watch.
    assert!(count() <= before + 10, "{before} descriptors, then {}", count());
}

/// 1,000 questions of a peer that reads no answer left so many descriptors on their way that the system
/// allows this user no more.
#[test]
fn issue_13_who_reads_no_answers_is_disconnected() {
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let (_side, mut child, _) = join(&context, "deaf");
    let counts = child.hear();
    let (asked, answers) = counts.split_once(' ').unwrap();
    let answers: u32 = answers.parse().unwrap();
    assert!(answers <= 4, "{answers} answers to {asked} questions");
    let (mut a, b) = connected((bench.open(), &Options::default()), (context, &Options::default()));
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
}

/// A peer that takes away all pages it can harms its own queue pair at most. Where the system promises more
/// memory than it has (the default), a hole gets a new page; else it may get none, and the touch is a SIGBUS:
/// to see that, run this test after `sysctl vm.overcommit_memory=2`.
#[test]
fn issue_13_holes_in_shared_memory_end_one_session_at_most() {
    let _turn = TURN.lock();
    let bench = bench();
    let context = bench.open();
    let options = Options::default();
    let (mut a, b) = connected((bench.open(), &options), (context.clone(), &options));
    let (mut side, mut child, peer) = join(&context, "holes");
    let remote = RemoteAddr { addr: peer.address, rkey: peer.key };
    side.run_ok(SendOp::Read(remote), &[side.sge(0, 4096)]);
    let mut seen = vec![0; options.bytes];
    let holes: u32 = child.ask("take all pages").parse().unwrap();
    assert_eq!(holes, 7, "all but the table of valid keys");
    let sges = [side.sge(0, 4096)];
    side.mr.region().whole().read_at(0, &mut seen).unwrap();
    let read = side.run(SendWr::new(7, SendOp::Read(remote), Payload::Sges(&sges)));
    if strict() {
        assert!(read.is_err(), "{read:?}");
        eventually("the error state", || side.qp.state() == QpState::Err);
        let told = std::iter::from_fn(|| context.async_event()).map(|event| format!("{event:?}"));
        let told: Vec<_> = told.collect();
        assert!(told.iter().any(|event| event.contains("SIGBUS")), "{told:?}");
    }
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
    child.kill();
    eventually("the error state", || side.qp.state() == QpState::Err);
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
}
