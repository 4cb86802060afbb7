//! As many connections as the DRUM paper's monitor has descriptors for, many applications, and what they cost.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

use catchment_agent::policy::Policy;
use catchment_agent::protocol::{self, Processor, Reply, Request};
use catchment_agent::{Agent, Inquiry};
use catchment_conformance::{ALL, eventually, wait_some};
use catchment_probe::load::{did, scaled};
use catchment_provider_shm::seqpacket;
use catchment_verbs::{
    Context, Cq, Mr, Payload, Pd, Qp, QpInit, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Sge,
};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use suite::{ROCE, open, peer, two_agents};

/// Requests under way.
const BATCH: usize = 256;
/// Bytes of a request: the number of its connection.
const WORD: usize = 8;

/// An application with many queue pairs.
struct Crowd {
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
    qps: Vec<Box<dyn Qp>>,
    pd: Arc<dyn Pd>,
    _context: Arc<dyn Context>,
}

impl Crowd {
    fn new(agent: &str, count: usize) -> Self {
        let context = open(agent, "suite");
        let pd = context.alloc_pd().unwrap();
        let mr = pd.alloc_mr(count * WORD, ALL).unwrap();
        let cq = context.create_cq(2 * BATCH as u32, None).unwrap();
        Self { cq, mr, qps: Vec::new(), pd, _context: context }
    }

    fn add(&mut self) -> usize {
        self.qps.push(self.pd.create_qp(QpInit::rc(&self.cq, 1, 1)).unwrap());
        self.qps.len() - 1
    }

    fn connect(&mut self, at: usize, with: &Self) {
        let (remote, qp) = (with.qps[at].endpoint(), &mut self.qps[at]);
        qp.connect(ALL, RtrAttr::new(remote), RtsAttr::default()).unwrap();
    }

    fn word(&self, at: usize) -> u64 {
        let word = self.mr.region().slice(at * WORD, WORD).unwrap().to_vec();
        u64::from_le_bytes(word.try_into().unwrap())
    }

    /// Writes the number of each connection, and a little more, into the memory of its peer.
    fn write_all(&mut self, to: &Self, more: u64) {
        let all = 0..self.qps.len();
        for first in all.clone().step_by(BATCH) {
            let batch = first..all.end.min(first + BATCH);
            batch.clone().for_each(|at| self.write(at, to, more));
            for one in wait_some(&*self.cq, batch.len()) {
                assert!(one.result.is_ok(), "{one:?}");
            }
        }
    }

    fn write(&mut self, at: usize, to: &Self, more: u64) {
        let (offset, word) = ((at * WORD) as u64, at as u64 + more);
        self.mr.region().whole().write_at(at * WORD, &word.to_le_bytes()).unwrap();
        let remote = RemoteAddr { addr: to.mr.addr() + offset, rkey: to.mr.rkey() };
        let sge = Sge { addr: self.mr.addr() + offset, bytes: 8, lkey: self.mr.lkey() };
        let sges = [sge];
        let wr = SendWr::new(word, SendOp::Write(remote), Payload::Sges(&sges));
        self.qps[at].post_send(&[wr]).unwrap();
    }
}

/// Connections of an application: it may have no more than its completion queue at the device holds.
const EACH: usize = 128;
/// Of all, where none are too many for agents to answer each other in time.
const FEW: usize = 512;

/// Returns an application of each host, with so many connections from one to the other.
fn crowds(names: &[String; 2], count: usize) -> [Crowd; 2] {
    let [mut here, mut there] = names.each_ref().map(|name| Crowd::new(name, count));
    for at in 0..count {
        assert_eq!((here.add(), there.add()), (at, at));
        here.connect(at, &there);
        there.connect(at, &here);
    }
    [here, there]
}

/// S5.2: each of 512 connections of four applications is registered and served, and has its own data; of 65,536 in the nightly
/// run. They share queue pairs of the device, and those of an application one doorbell.
#[test]
fn s5_2_each_of_many_connections_is_served() {
    let count = scaled(FEW as u64) as usize;
    let (_agents, names) = two_agents("crowd", ROCE, 20);
    let first = (0..count).step_by(EACH);
    let mut all: Vec<_> = first.map(|first| crowds(&names, EACH.min(count - first))).collect();
    let share = || peer(&names).connections as usize;
    if count == FEW {
        eventually("all share", || share() == count);
    } else {
        // Who was not answered in time has a queue pair of its own.
        eprintln!("{} of {count} connections share", share());
    }
    for more in 1..=2 {
        for [here, there] in &mut all {
            here.write_all(there, more);
        }
        for [_, there] in &all {
            let own = (0..there.qps.len()).all(|at| there.word(at) == at as u64 + more);
            assert!(own, "a word went astray");
        }
    }
    assert!(peer(&names).queue_pairs <= 20);
    did("S5.2", count as u64, "connections, each served");
    drop(all);
    eventually("none is left", || peer(&names).connections == 0);
}

fn agent_alone(kind: &str) -> (Agent, String) {
    let name = format!("{kind}-{}", std::process::id());
    let text = format!(r#"{{"name": "{name}", "applications": [{{"name": "suite"}}]}}"#);
    (Agent::start(Policy::parse(&text).unwrap()).unwrap(), name)
}

/// Issue 16: beyond 136 applications an agent's status did not fit a message, and beyond some 500 its messages no socket:
/// it could not be had.
#[test]
fn issue_16_an_agent_tells_of_many_applications() {
    const COUNT: usize = 150;
    let (_agent, name) = agent_alone("told");
    let all: Vec<Arc<dyn Context>> = (0..COUNT).map(|_| open(&name, "suite")).collect();
    let mut inquiry = Inquiry::new(&name);
    for _ in 0..2 {
        assert_eq!(inquiry.ask().unwrap().applications.len(), COUNT);
    }
    // Who reads later has no less: each answer waits for room.
    const QUESTIONS: usize = 40;
    let deadline = Instant::now() + Duration::from_secs(60);
    let asker = seqpacket::connect(&protocol::address(&name).unwrap(), deadline).unwrap();
    for _ in 0..QUESTIONS {
        protocol::send(asker.as_fd(), &Request::Status, &[]).unwrap();
    }
    let (mut answers, mut told) = (0, 0);
    while answers < QUESTIONS {
        let reply = protocol::receive(asker.as_fd(), protocol::REPLY_BYTES, deadline);
        let reply: Reply = reply.unwrap().expect("the agent stays").0;
        if let Reply::Accounts { applications } = &reply {
            told += applications.len();
        }
        if let Reply::Status(standing) = reply {
            answers += 1;
            told += standing.applications.len();
        }
    }
    assert_eq!(told, QUESTIONS * COUNT);
    drop(all);
    eventually("none is left", || inquiry.ask().unwrap().applications.is_empty());
}

/// S5.26: the processor time of the thread that moves requests is divided among what the paper counts, the busy poll among
/// them, and adds up to all of it.
#[test]
fn s5_26_the_agents_processor_time_is_told_by_what_it_was_for() {
    let (_agent, name) = agent_alone("divided");
    let mut inquiry = Inquiry::new(&name);
    let mut processor = || inquiry.ask().unwrap().processor.unwrap();
    let steps = |one: &Processor| [one.take_ns, one.schedule_ns, one.post_ns, one.complete_ns];
    let count = 64;
    let [mut here, there] = crowds(&[name.clone(), name], count);
    let mut more = 0;
    eventually("each step was seen at work", || {
        more += 1;
        here.write_all(&there, more);
        let seen = processor();
        let all = steps(&seen).iter().sum::<u64>() + seen.command_ns + seen.look_ns;
        assert_eq!(all, seen.engine_ns, "{seen:?}");
        assert!(seen.engine_ns > 0 && seen.process_ns >= seen.engine_ns, "{seen:?}");
        steps(&seen).iter().all(|step| *step > 0)
    });
}
