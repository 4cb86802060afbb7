//! Messages over queue pairs that connections of two hosts share: each comes into its own receive, once and in order,
//! whatever others do and whatever fails.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

use catchment_agent::{Agent, rounds};
use catchment_conformance::{Options, Side, connect, connected, eventually, wait_one, wait_some};
use catchment_probe::child::{Child, role, say};
use catchment_probe::load::{did, scaled};
use catchment_verbs::{
    Access, Completion, Endpoint, Payload, QpTransition, RtsAttr, SendOp, SendWr, Success,
    WcOpcode, WcStatus,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use suite::{SHM, open, peer, two_agents, two_agents_in};

const ROCE: [&str; 2] = [r#"{"roce": "127.0.0.1"}"#, r#"{"roce": "127.0.0.2"}"#];
const SLOT: usize = 64;
/// Places that are written to, then those of receives, in order.
const WRITTEN: usize = 32;
const RECEIVES: usize = 16;
/// Messages after which a receive is posted again.
const LATER: u64 = 4;
/// Messages that are not done at their sender.
const AHEAD: u64 = 8;
const MARK: [u8; 8] = [0xee; 8];

fn small() -> Options {
    Options { bytes: (WRITTEN + RECEIVES + 1) * SLOT, ..Options::default() }
}

/// A connection over which messages go one way.
struct Flow {
    number: u64,
    a: Side,
    b: Side,
    posted: u64,
    done: u64,
    received: u64,
}

fn receive_at(n: u64) -> usize {
    (WRITTEN + n as usize % RECEIVES) * SLOT
}

fn write_at(n: u64) -> usize {
    n as usize % WRITTEN * SLOT
}

impl Flow {
    fn value(&self, n: u64) -> [u8; 8] {
        (self.number << 40 | n).to_ne_bytes()
    }

    fn post_receive(&mut self, n: u64) {
        let at = receive_at(n);
        let sges = [self.b.sge(at, 3), self.b.sge(at + 3, SLOT - 3)];
        let whole = [self.b.sge(at, SLOT)];
        self.b.post_recv(n, if n.is_multiple_of(2) { &sges } else { &whole });
    }

    /// Writes a value, and tells of it by a message.
    fn post(&mut self) {
        let (n, value) = (self.posted, self.value(self.posted));
        let a = &mut self.a;
        let at = n as usize % AHEAD as usize * 2 * 8;
        a.put(at, &value);
        let (write, imm) = (self.b.remote(write_at(n)), n as u32);
        let sges = [a.sge(at, 8)];
        let halves = [a.sge(at, 5), a.sge(at + 5, 3)];
        let write = SendWr::new(n, SendOp::Write(write), Payload::Sges(&sges)).unsignaled();
        let (op, payload) = match n / 2 % 4 {
            0 => (SendOp::Send, Payload::Inline(&value)),
            1 => (SendOp::Send, Payload::Sges(&halves)),
            2 => (SendOp::SendImm(imm), Payload::Sges(&sges)),
            _ => (SendOp::WriteImm(self.b.remote(receive_at(n)), imm), Payload::Sges(&sges)),
        };
        a.qp.post_send(&[write, SendWr::new(n, op, payload)]).unwrap();
        self.posted += 1;
    }

    fn take_sent(&mut self) -> usize {
        let mut out = [Completion::EMPTY; 16];
        let count = self.a.send_cq.poll(&mut out).unwrap();
        for completion in &out[..count] {
            assert!(completion.result.is_ok(), "{completion:?}");
            assert_eq!((completion.wr_id, completion.qpn), (self.done, self.a.qp.qpn()));
            self.done += 1;
        }
        count
    }

    fn take_received(&mut self) -> usize {
        let mut out = [Completion::EMPTY; 16];
        let count = self.b.recv_cq.poll(&mut out).unwrap();
        for completion in &out[..count] {
            let n = self.received;
            let (opcode, imm) = match n / 2 % 4 {
                0 | 1 => (WcOpcode::Recv, None),
                2 => (WcOpcode::Recv, Some(n as u32)),
                _ => (WcOpcode::RecvWriteImm, Some(n as u32)),
            };
            let expected = Success::plain(opcode, 8).with_imm(imm);
            assert_eq!((completion.wr_id, completion.result), (n, Ok(expected)), "{}", self.number);
            for at in [receive_at(n), write_at(n)] {
                assert_eq!(self.b.get(at, 8), self.value(n), "connection {}, {n}", self.number);
                // What has arrived is the receiver's: nothing is written there again.
                self.b.put(at, &MARK);
            }
            self.received += 1;
            if let Some(old) = n.checked_sub(LATER) {
                for at in [receive_at(old), write_at(old)] {
                    assert_eq!(self.b.get(at, 8), MARK, "written again: {old} of {}", self.number);
                }
                self.post_receive(old + RECEIVES as u64);
            }
        }
        count
    }
}

/// Connections from an application of the first host to one of the second.
fn flows(names: &[String; 2], application: &str, count: u64) -> Vec<Flow> {
    let (here, there) = (open(&names[0], application), open(&names[1], application));
    let options = small();
    let connect = |number| {
        let (a, b) = connected((here.clone(), &options), (there.clone(), &options));
        let mut flow = Flow { number, a, b, posted: 0, done: 0, received: 0 };
        (0..RECEIVES as u64).for_each(|n| flow.post_receive(n));
        flow
    };
    (0..count).map(connect).collect()
}

/// Sends this many messages more over all connections at once, and checks each.
fn exchange(flows: &mut [Flow], messages: u64, mut meanwhile: impl FnMut(u64)) {
    let each = messages / flows.len() as u64;
    let ends: Vec<u64> = flows.iter().map(|flow| flow.received + each).collect();
    let (mut rounds, mut moved) = (0, Instant::now());
    while flows.iter().zip(&ends).any(|(flow, end)| flow.received < *end || flow.done < *end) {
        rounds += 1;
        meanwhile(rounds);
        for (flow, end) in flows.iter_mut().zip(&ends) {
            while flow.posted < *end && flow.posted < flow.done + AHEAD {
                flow.post();
            }
            if flow.take_sent() + flow.take_received() > 0 {
                moved = Instant::now();
            } else {
                std::thread::yield_now();
            }
        }
        let seen = || flows.iter().map(|flow| (flow.done, flow.received)).collect::<Vec<_>>();
        assert!(moved.elapsed() < catchment_conformance::PATIENCE, "{:?} of {ends:?}", seen());
    }
}

/// S5.8: messages of a hundred connections over thirteen queue pairs, each with or without an immediate of its own:
/// not one of 5 * 10^4 goes astray, or of 10^6 in the nightly run.
#[test]
fn s5_8_messages_of_a_hundred_connections_go_where_they_belong() {
    let (_agents, names) = two_agents("messages", SHM, 20);
    let mut flows = flows(&names, "suite", 100);
    let messages = scaled(50_000);
    exchange(&mut flows, messages, |_| {});
    did("S5.8", messages, "messages of 100 connections");
    let seen = peer(&names);
    assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (100, 13, 0));
}

/// The same over packets, with the least number of queue pairs.
#[test]
fn messages_share_queue_pairs_over_packets() {
    let (_agents, names) = two_agents("packets", ROCE, 1);
    let mut flows = flows(&names, "suite", 12);
    exchange(&mut flows, 6_000, |_| {});
    let seen = peer(&names);
    assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (12, 1, 0));
}

/// Shared queue pairs fail again and again at either end, with messages on them: each arrives once and in order, and
/// what has arrived is not written again.
fn break_under_messages(kind: &str, devices: [&str; 2], messages: u64) {
    let (agents, names) = two_agents(kind, devices, 2);
    let mut flows = flows(&names, "suite", 12);
    let breaks = |agents: &[Agent; 2], round: u64| {
        if round.is_multiple_of(20) {
            agents[(round / 20 % 2) as usize].break_shared_queue_pairs();
        }
    };
    exchange(&mut flows, messages, |round| breaks(&agents, round));
    let seen = peer(&names);
    assert_eq!(seen.connections, 12);
    assert!(seen.failed > 2, "{seen:?}");
}

#[test]
fn messages_outlive_the_queue_pairs_that_they_share() {
    break_under_messages("outlive", SHM, scaled(40_000));
}

#[test]
fn messages_outlive_the_queue_pairs_that_they_share_over_packets() {
    break_under_messages("outlive-roce", ROCE, 4_000);
}

/// Runs innocent flows beside something; returns how many messages they moved.
fn beside(mut flows: Vec<Flow>, what: impl FnOnce()) -> u64 {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let innocent = std::thread::spawn(move || {
        let mut rounds = 0;
        while !stopped.load(Ordering::Acquire) {
            exchange(&mut flows, 1_000, |_| {});
            rounds += 1;
        }
        rounds
    });
    what();
    stop.store(true, Ordering::Release);
    innocent.join().unwrap()
}

/// Messages and receives of an application that cannot succeed end as on queue pairs of their own; who shares with
/// it notices nothing, and is not held up by a peer that posts no receives.
#[test]
fn wrong_messages_fail_only_who_made_them() {
    let (_agents, names) = two_agents("wrong-sends", SHM, 1);
    let good = flows(&names, "good", 1);
    let moved = beside(good, || {
        // It waits for a receive that nobody posts, all the while.
        let connect = |ours: &Options, theirs: &Options| {
            connected((open(&names[0], "bad"), ours), (open(&names[1], "bad"), theirs))
        };
        let (mut waits, _idle) = connect(&small(), &small());
        let sges = [waits.sge(0, 8)];
        (0..32).for_each(|n| waits.post(SendWr::new(n, SendOp::Send, Payload::Sges(&sges))));
        let hasty = Options { rts: RtsAttr { rnr_retry: 0, ..RtsAttr::default() }, ..small() };
        let fixed = Options { access: Access::empty(), ..small() };
        type Wrong = fn(&mut Side, &mut Side) -> u32;
        let no_receive: Wrong = |a, _| a.mr.lkey();
        let too_short: Wrong = |a, b| {
            b.post_recv(1, &[b.sge(0, 7)]);
            a.mr.lkey()
        };
        let wrong_receive: Wrong = |a, b| {
            let sge = b.sge(0, 8);
            b.post_recv(1, &[catchment_verbs::Sge { lkey: sge.lkey ^ 1 << 20, ..sge }]);
            a.mr.lkey()
        };
        let receive: Wrong = |a, b| {
            b.post_recv(1, &[b.sge(0, 8)]);
            a.mr.lkey()
        };
        let wrong_key: Wrong = |a, b| {
            b.post_recv(1, &[b.sge(0, 8)]);
            a.mr.lkey() ^ 1 << 20
        };
        let cases = [
            (&hasty, small(), no_receive, WcStatus::RnrRetryExceeded),
            (&small(), small(), too_short, WcStatus::RemoteInvalidRequest),
            (&small(), small(), wrong_receive, WcStatus::RemoteOperation),
            (&small(), fixed, receive, WcStatus::RemoteOperation),
            (&small(), small(), wrong_key, WcStatus::LocalProtection),
        ];
        for (case, (ours, theirs, wrong, status)) in cases.into_iter().enumerate() {
            let (mut a, mut b) = connect(ours, &theirs);
            let lkey = wrong(&mut a, &mut b);
            let sges = [catchment_verbs::Sge { lkey, ..a.sge(0, 8) }];
            let message = SendWr::new(9, SendOp::Send, Payload::Sges(&sges));
            assert_eq!(a.run(message).unwrap_err().status, status, "case {case}");
            assert_eq!(b.get(0, 16), [0; 16], "case {case}");
        }
        drop(waits);
    });
    assert!(moved > 0);
    assert_eq!((peer(&names).queue_pairs, peer(&names).failed), (1, 0));
}

/// A region with receives ends: no message is written to it after that, and nothing fails that others share.
#[test]
fn a_region_ends_under_the_messages_of_a_peer() {
    let (_agents, names) = two_agents("ends-receives", SHM, 1);
    let mut other = flows(&names, "good", 1);
    for round in 0..10u64 {
        let Flow { mut a, mut b, .. } = flows(&names, "bad", 1).pop().unwrap();
        for n in 0..RECEIVES as u64 {
            a.run_ok(SendOp::Send, &[a.sge(0, 8)]);
            assert_eq!(wait_one(&*b.recv_cq).wr_id, n);
        }
        let mr = b.pd.alloc_mr(SLOT, catchment_conformance::ALL).unwrap();
        let region = Arc::clone(mr.region());
        let sge = catchment_verbs::Sge { addr: mr.addr(), bytes: SLOT as u32, lkey: mr.lkey() };
        (0..32).for_each(|n| b.post_recv(n, &[sge]));
        a.put(0, &[1; SLOT]);
        let sges = [a.sge(0, SLOT)];
        let message = SendWr::new(round, SendOp::Send, Payload::Sges(&sges));
        (0..4).for_each(|_| a.post(message));
        (0..16).for_each(|_| a.post(message));
        drop(mr);
        region.whole().write_at(0, &[0; SLOT]).unwrap();
        let ended = wait_some(&*a.send_cq, 20).iter().any(|done| done.result.is_err());
        assert!(ended || a.run(message).is_err(), "it found a receive that had ended");
        assert_eq!(region.whole().to_vec(), [0; SLOT], "written after it ended");
        exchange(&mut other, 100, |_| {});
    }
    assert_eq!(peer(&names).failed, 0);
}

/// The second process: an application that receives until it is killed.
#[test]
fn second_process() {
    let Some(role) = role() else { return };
    let (agent, endpoint) = role.split_once(' ').unwrap();
    let mut side = Side::new(open(agent, "bad"), &small());
    say(&side.qp.endpoint().to_string());
    let endpoint: Endpoint = endpoint.parse().unwrap();
    side.connect(endpoint, &small());
    (0..32).for_each(|n| side.post_recv(n, &[side.sge(0, SLOT)]));
    let sges = [side.sge(SLOT, SLOT)];
    // These wait for receives of the peer.
    (0..8).for_each(|n| side.post(SendWr::new(n, SendOp::Send, Payload::Sges(&sges))));
    say("connected");
    loop {
        let done = wait_one(&*side.recv_cq);
        side.post_recv(done.wr_id, &[side.sge(0, SLOT)]);
    }
}

/// An application dies that messages go to over a queue pair that others share: who sends to it has an error, its
/// receives are flushed, nobody else has one.
#[test]
fn an_application_that_is_killed_fails_only_who_sends_to_it() {
    let (_agents, names) = two_agents("killed-receiver", SHM, 1);
    let mut other = flows(&names, "good", 1);
    for _ in 0..5 {
        let mut side = Side::new(open(&names[0], "bad"), &small());
        let role = format!("{} {}", names[1], side.qp.endpoint());
        let mut process = Child::start("second_process", &role);
        let endpoint: Endpoint = process.hear().parse().unwrap();
        side.connect(endpoint, &small());
        assert_eq!(process.hear(), "connected");
        let sges = [side.sge(0, SLOT)];
        let message = SendWr::new(1, SendOp::Send, Payload::Sges(&sges));
        side.run(message).unwrap();
        (0..32).for_each(|_| side.post(message));
        process.kill();
        (0..4).for_each(|n| side.post_recv(n, &[side.sge(SLOT, SLOT)]));
        exchange(&mut other, 1_000, |_| {});
        let until = Instant::now() + Duration::from_secs(60);
        let _ = wait_some(&*side.send_cq, 32);
        while side.run(message).is_ok() {
            assert!(Instant::now() < until, "nobody said that it is gone");
        }
        let receives = wait_some(&*side.recv_cq, 4);
        // What it had posted before it died may have come.
        let ended = |done: &Completion| done.result.is_ok_and(|it| it.bytes == SLOT as u64);
        let flushed =
            |done: &Completion| done.result.is_err_and(|it| it.status == WcStatus::Flushed);
        assert!(receives.iter().all(|done| ended(done) || flushed(done)), "{receives:?}");
    }
    eventually("the end of theirs", || peer(&names).connections == 1);
    assert_eq!(peer(&names).failed, 0);
}

/// Connections end while the queue pairs that they share fail: what their senders know to have arrived is there, of
/// each, and nobody waits for what is gone.
#[test]
fn what_has_arrived_outlives_its_connection_and_its_queue_pair() {
    let (agents, names) = two_agents("ends-sends", SHM, 1);
    let mut other = flows(&names, "good", 1);
    for round in 0..30usize {
        let Flow { mut a, mut b, .. } = flows(&names, "bad", 1).pop().unwrap();
        let sges = [a.sge(0, 8)];
        let messages = 1 + round as u64 % 8;
        (0..messages).for_each(|n| a.post(SendWr::new(n, SendOp::Send, Payload::Sges(&sges))));
        let done = wait_some(&*a.send_cq, messages as usize);
        assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
        agents[round % 2].break_shared_queue_pairs();
        let ends = if round / 2 % 2 == 0 { &mut a } else { &mut b };
        ends.qp.modify(QpTransition::ToErr).unwrap();
        let received = wait_some(&*b.recv_cq, messages as usize);
        assert!(received.iter().all(|done| done.result.is_ok()), "{round}: {received:?}");
        exchange(&mut other, 20, |_| {});
    }
}

fn carry_numbers(kind: &str, devices: [&str; 2]) {
    let members = serde_json::json!({ "between": { "in_data": true } });
    let (_agents, names) = two_agents_in(&members, (kind, devices), (20, 1 << 40));
    let mut flows = flows(&names, "suite", 2);
    let options = small();
    let of = |host: usize| rounds(&names[host]).unwrap().unwrap();
    let mut other = None;
    eventually("numbers that data brought", || {
        // Something to agree on: an application that comes, and goes.
        other = other.is_none().then(|| {
            connected((open(&names[0], "good"), &options), (open(&names[1], "good"), &options))
        });
        exchange(&mut flows, 256, |_| {});
        of(1).carried > 8
    });
    eventually("an agreement", || (0..2).all(|host| of(host).still));
    assert!((0..2).all(|host| of(host).refused == 0), "all of them are numbers of rounds");
    assert_eq!(of(0).carried, 0, "nothing is sent there");
}

/// S5.27: messages carry the numbers of the rounds where the policy says so, and are the same messages.
#[test]
fn s5_27_messages_carry_the_numbers_of_rounds() {
    carry_numbers("carrying", SHM);
}

#[test]
fn s5_27_messages_carry_the_numbers_of_rounds_over_packets() {
    carry_numbers("carrying-roce", ROCE);
}

/// Connections that are reset and connected again at once, while messages wait: what agents still say to each other of the
/// life before ends neither the new one nor its messages.
#[test]
fn who_is_reset_and_connected_again_has_its_messages() {
    let (_agents, names) = two_agents("again", SHM, 20);
    let options = small();
    let (mut a, mut b) =
        connected((open(&names[0], "suite"), &options), (open(&names[1], "suite"), &options));
    for round in 0..scaled(150) {
        // No receive waits for them: they vanish with the connection.
        for _ in 0..2 {
            a.post(SendWr::new(round, SendOp::Send, Payload::Inline(&MARK)));
        }
        for side in [&mut a, &mut b] {
            side.qp.modify(QpTransition::ToReset).unwrap();
        }
        connect((&mut a, &options), (&mut b, &options));
        b.post_recv(round, &[b.sge(0, 8)]);
        let value = round.to_ne_bytes();
        let sent = a.run(SendWr::new(round, SendOp::Send, Payload::Inline(&value)));
        let received = wait_one(&*b.recv_cq);
        assert!(sent.is_ok() && received.result.is_ok(), "{round}: {sent:?}, {received:?}");
        assert_eq!((received.wr_id, b.get(0, 8)), (round, value.to_vec()));
    }
}
