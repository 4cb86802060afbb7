//! Applications that do what no honest one does: they harm themselves only.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
use catchment_agent::entry::{Data, HEAD_BYTES, REST_BYTES, Request as Entry, Work};
use catchment_agent::policy::Policy;
use catchment_agent::pool::{POOL_BYTES, REQUESTS, RESTS, SLOT_BYTES, SLOTS};
use catchment_agent::protocol::{self, Reply, Request, Transition, VERSION};
use catchment_agent::{Agent, AgentOptions, AgentProvider, status};
use catchment_conformance::{Options, Side, connected, eventually};
use catchment_provider_shm::seqpacket;
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::{
    Access, Context, Destination, Gid, Provider as _, RemoteAddr, SendOp, Sge, WcStatus, event,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// An entry, head and rest together.
const ENTRY_BYTES: usize = HEAD_BYTES + REST_BYTES;

fn agent(name: &str) -> (Agent, String) {
    agent_over(name, r#""shm""#)
}

fn agent_over(name: &str, device: &str) -> (Agent, String) {
    let name = format!("{name}-{}", std::process::id());
    let text = format!(
        r#"{{"name": "{name}", "device": {device}, "applications": [
            {{"name": "good"}}, {{"name": "bad", "memory_bytes": 1048576, "datagrams": true}}]}}"#
    );
    (Agent::start(Policy::parse(&text).unwrap()).unwrap(), name)
}

fn open(agent: &str, application: &str) -> Arc<dyn Context> {
    let options = AgentOptions { agent: agent.to_owned(), application: application.to_owned() };
    AgentProvider::new(options).open(agent).unwrap()
}

/// An application that speaks the protocol itself.
struct Raw {
    socket: OwnedFd,
    pool: Arc<Region>,
    bell: OwnedFd,
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

impl Raw {
    fn dial(agent: &str) -> OwnedFd {
        seqpacket::connect(&protocol::address(agent).unwrap(), soon()).unwrap()
    }

    fn ask_on(socket: &OwnedFd, request: &Request) -> Option<(Reply, Vec<OwnedFd>)> {
        protocol::send(socket.as_fd(), request, &[]).ok()?;
        protocol::receive(socket.as_fd(), protocol::REPLY_BYTES, soon()).unwrap()
    }

    fn join(agent: &str) -> Self {
        let socket = Self::dial(agent);
        let application = "bad".to_owned();
        let hello = Request::Hello { version: VERSION, application };
        let (reply, descriptors) = Self::ask_on(&socket, &hello).unwrap();
        assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}");
        let [pool, bell, _ours]: [OwnedFd; 3] = descriptors.try_into().unwrap();
        let pool = Region::from_peer(pool, POOL_BYTES, true).unwrap();
        Self { socket, pool, bell }
    }

    fn ask(&self, request: &Request) -> Option<Reply> {
        Some(Self::ask_on(&self.socket, request)?.0)
    }

    fn domain(&self) -> u32 {
        let Some(Reply::Pd { pd }) = self.ask(&Request::AllocPd) else { panic!("no domain") };
        pd
    }

    /// A queue pair of its own.
    fn queue_pair(&self) -> u32 {
        self.queue_pair_of(self.domain(), false)
    }

    fn queue_pair_of(&self, pd: u32, datagrams: bool) -> u32 {
        let create = Request::CreateQp { pd, datagrams, max_send_wr: 16, max_recv_wr: 16 };
        let Some(Reply::Created { queue_pair, .. }) = self.ask(&create) else {
            panic!("no queue pair")
        };
        queue_pair
    }

    /// An address handle of its own.
    fn address_handle(&self, pd: u32, gid: Gid) -> u32 {
        let create = Request::CreateAh { pd, gid: gid.to_string(), net: None };
        let Some(Reply::Ah { ah }) = self.ask(&create) else { panic!("no address handle") };
        ah
    }

    /// One that takes receives.
    fn ready_queue_pair(&self) -> u32 {
        let queue_pair = self.queue_pair();
        let modify = Request::Modify { queue_pair, to: Transition::Init(0) };
        assert!(matches!(self.ask(&modify), Some(Reply::Qp { .. })));
        queue_pair
    }

    /// Puts bytes into the slot of a request, and publishes them.
    fn put(&self, n: u64, turn: u64, bytes: &[u8]) {
        let slot = (n % SLOTS) as usize;
        let at = REQUESTS + slot * SLOT_BYTES;
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES));
        self.pool.whole().write_at(RESTS + slot * REST_BYTES, rest).unwrap();
        self.pool.whole().write_at(at + 8, head).unwrap();
        self.pool.whole().atomic_u64(at).unwrap().store(turn, Ordering::Release);
        event::ring(&self.bell);
    }
}

/// Two connected sides of an honest application.
fn good_pair(agent: &str) -> (Side, Side) {
    let options = Options { bytes: 64 << 10, ..Options::default() };
    connected((open(agent, "good"), &options), (open(agent, "good"), &options))
}

fn assert_serves((a, b): &mut (Side, Side), value: u8) {
    a.put(0, &[value; 100]);
    let sges = [a.sge(0, 100)];
    a.run_ok(SendOp::Write(b.remote(0)), &sges);
    assert_eq!(b.get(0, 100), [value; 100]);
}

/// What a hostile application writes into its pool.
#[derive(Debug, Clone)]
enum Scribble {
    /// Any bytes anywhere: indices, flags, slots.
    Anywhere(usize, Vec<u8>),
    /// The next entries, of any bytes.
    Entry(Vec<u8>),
    /// An entry that is nearly right, of its own queue pair: any operation, keys, addresses, lengths.
    Nearly(u8, u8, Vec<u8>),
    /// An entry of a turn that is not the next.
    Turn(u64),
}

fn scribble() -> impl Strategy<Value = Scribble> {
    let bytes = |most: usize| prop::collection::vec(any::<u8>(), 1..most);
    prop_oneof![
        (0..POOL_BYTES - 64, bytes(64)).prop_map(|(at, bytes)| Scribble::Anywhere(at, bytes)),
        bytes(ENTRY_BYTES).prop_map(Scribble::Entry),
        (0u8..12, 0u8..8, bytes(ENTRY_BYTES - 16))
            .prop_map(|(code, flags, bytes)| Scribble::Nearly(code, flags, bytes)),
        any::<u64>().prop_map(Scribble::Turn),
    ]
}

#[test]
fn any_bytes_in_its_ring_harm_only_who_wrote_them() {
    let (_agent, name) = agent("scribble");
    let pair = RefCell::new((good_pair(&name), 0u8));
    proptest!(ProptestConfig::with_cases(48), |(script in prop::collection::vec(scribble(), 1..20))| {
        let raw = Raw::join(&name);
        let queue_pair = raw.queue_pair();
        for (n, step) in (0u64..).zip(script) {
            match step {
                Scribble::Anywhere(at, bytes) => raw.pool.whole().write_at(at, &bytes).unwrap(),
                Scribble::Entry(bytes) => raw.put(n, n + 1, &bytes),
                Scribble::Turn(turn) => raw.put(n, turn, &[1; 16]),
                Scribble::Nearly(code, flags, bytes) => {
                    let mut entry = [0; ENTRY_BYTES];
                    entry[16..16 + bytes.len()].copy_from_slice(&bytes);
                    (entry[0], entry[1], entry[2]) = (code, flags, flags % 5);
                    entry[4..8].copy_from_slice(&queue_pair.to_le_bytes());
                    raw.put(n, n + 1, &entry);
                }
            }
        }
        let (good, round) = &mut *pair.borrow_mut();
        *round = round.wrapping_add(1);
        assert_serves(good, *round);
        drop(raw);
    });
    eventually("the end of all hostile ones", || {
        status(&name).unwrap().iter().all(|account| account.application == "good")
    });
}

#[test]
fn an_entry_of_nobodys_queue_pair_or_too_many_end_the_connection() {
    let (_agent, name) = agent("ended");
    let mut pair = good_pair(&name);
    let entry = |queue_pair| {
        let data = Data::of_elements(&[]).unwrap();
        Entry { queue_pair, seq: 0, work: Work::Receive, data }.head().unwrap()
    };
    for is_foreign in [true, false] {
        let raw = Raw::join(&name);
        let own = raw.ready_queue_pair();
        let (queue_pair, count) = if is_foreign { (own + 1, 1) } else { (own, 17) };
        (0..count).for_each(|n| raw.put(n, n + 1, &entry(queue_pair)));
        eventually("the hang-up", || raw.ask(&Request::AllocPd).is_none());
    }
    assert_serves(&mut pair, 1);
}

/// S5.6: datagrams go from queue pairs of UD, by address handles of the same protection domain, and nothing else goes from
/// those.
#[test]
fn s5_6_a_datagram_that_is_not_its_own_ends_the_connection() {
    let (_agent, name) = agent_over("datagrams", r#"{"roce": "127.0.0.1"}"#);
    let mut pair = good_pair(&name);
    let gid = pair.0.context.gid();
    let send = |raw: &Raw, n: u64, queue_pair: u32, op| {
        let work = Work::Send { op, signaled: true, fence: false, solicited: false };
        let entry = Entry { queue_pair, seq: n, work, data: Data::Inline(0) };
        raw.put(n, n + 1, &entry.head().unwrap());
    };
    let by = |ah| SendOp::SendTo(Destination { ah, qpn: 17, qkey: 1 });
    for case in ["of another domain", "ended", "from RC", "no datagram"] {
        let raw = Raw::join(&name);
        let (pd, other) = (raw.domain(), raw.domain());
        let [reliable, unreliable] =
            [false, true].map(|datagrams| raw.queue_pair_of(pd, datagrams));
        for to in [Transition::InitUd(1), Transition::RtrUd, Transition::RtsUd] {
            let modify = Request::Modify { queue_pair: unreliable, to };
            assert!(matches!(raw.ask(&modify), Some(Reply::Qp { .. })));
        }
        let own = raw.address_handle(pd, gid);
        send(&raw, 0, unreliable, by(own));
        assert!(matches!(raw.ask(&Request::AllocPd), Some(Reply::Pd { .. })), "one of its own");
        match case {
            "of another domain" => {
                let ah = raw.address_handle(other, gid);
                send(&raw, 1, unreliable, by(ah));
            }
            "ended" => {
                assert_eq!(raw.ask(&Request::DropAh { ah: own }), Some(Reply::Done));
                send(&raw, 1, unreliable, by(own));
            }
            "from RC" => send(&raw, 1, reliable, by(own)),
            _ => send(&raw, 1, unreliable, SendOp::Write(RemoteAddr::default())),
        }
        eventually(case, || raw.ask(&Request::AllocPd).is_none());
        assert_serves(&mut pair, 1);
    }
    let raw = Raw::join(&name);
    let pd = raw.domain();
    let none = Request::CreateAh { pd, gid: "nowhere".to_owned(), net: None };
    let Some(Reply::Refused { reason }) = raw.ask(&none) else { panic!("an address handle") };
    assert!(reason.contains("no GID"), "{reason}");
    for _ in 0..4096 {
        raw.address_handle(pd, gid);
    }
    let more = Request::CreateAh { pd, gid: gid.to_string(), net: None };
    let Some(Reply::Refused { reason }) = raw.ask(&more) else { panic!("too many") };
    assert!(reason.contains("at most 4096 address handles"), "{reason}");
}

/// Keys of another application are of no use, although the same agent registered both.
#[test]
fn no_application_reaches_the_memory_of_another() {
    let (_agent, name) = agent("keys");
    let options = Options { bytes: 64 << 10, ..Options::default() };
    let (mut bad, peer) = connected((open(&name, "bad"), &options), (open(&name, "bad"), &options));
    let mut good = good_pair(&name);
    good.0.put(0, b"a secret");
    let stolen: [Sge; 1] = [good.0.sge(0, 8)];
    let to: RemoteAddr = peer.remote(0);
    assert_eq!(bad.run_failing(SendOp::Write(to), &stolen), WcStatus::LocalProtection);
    assert_ne!(peer.get(0, 8), b"a secret");
    // Which the operator sees.
    let accounts = status(&name).unwrap();
    let failed = accounts.iter().find(|account| account.failed > 0).unwrap();
    assert_eq!((&*failed.application, failed.failed_by.get("local-protection")), ("bad", Some(&1)));
    assert_serves(&mut good, 2);
}

#[test]
fn what_the_policy_or_the_protocol_does_not_allow_is_refused_by_name() {
    let (_agent, name) = agent("refused");
    let refusal = |request: &Request| match Raw::ask_on(&Raw::dial(&name), request) {
        Some((Reply::Refused { reason }, _)) => reason,
        other => panic!("{other:?}"),
    };
    let hello = |version, application: &str| {
        let application = application.to_owned();
        Request::Hello { version, application }
    };
    assert!(refusal(&hello(VERSION, "stranger")).contains("no application \"stranger\""));
    assert!(refusal(&hello(VERSION + 1, "good")).contains(&format!("version {VERSION}")));
    assert!(refusal(&Request::AllocPd).contains("Hello"));
    let raw = Raw::join(&name);
    let Some(Reply::Pd { pd }) = raw.ask(&Request::AllocPd) else { panic!("no domain") };
    let register = |bytes, length: usize| {
        let region = Region::alloc(length, RegionOptions::default()).unwrap();
        let access = (Access::LOCAL_WRITE | Access::REMOTE_WRITE).bits();
        let request = Request::Register { pd, bytes, access, writable: true };
        let fd = region.lend().unwrap();
        protocol::send(raw.socket.as_fd(), &request, &[fd.as_fd()]).unwrap();
        let answer = protocol::receive(raw.socket.as_fd(), protocol::REPLY_BYTES, soon());
        answer.unwrap().unwrap().0
    };
    let refused = |reply: Reply, said: &str| {
        let Reply::Refused { reason } = reply else { panic!("{reply:?}") };
        assert!(reason.contains(said), "{reason}");
    };
    refused(register(1 << 40, 4096), "beyond the 1048576 that the policy allows");
    refused(register(8192, 4096), "8192");
    assert!(matches!(register(4096, 4096), Reply::Region { .. }));
    let opened = AgentProvider::new(AgentOptions {
        agent: format!("{name}-none"),
        application: "good".to_owned(),
    });
    let error = opened.open(&format!("{name}-none")).err().unwrap().to_string();
    assert!(error.contains("no agent of the name"), "{error}");
}
