//! Connections of two hosts that share queue pairs: how many there are, that nothing goes astray, and that nobody
//! ends what another one has there.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

use catchment_agent::policy::Policy;
use catchment_agent::{Agent, status};
use catchment_conformance::{
    ALL, Options, Side, Strays, connected, eventually, exchange_options, wait_one, wait_some,
};
use catchment_probe::child::{Child, role, say};
use catchment_probe::load::{did, scaled};
use catchment_verbs::{
    Access, Endpoint, Payload, QpTransition, RemoteAddr, SendOp, SendWr, WcStatus,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use suite::{ROCE, SHM, open, peer, two_agents, two_agents_in};

/// Connections from an application of the first host to one of the second, of one device each.
fn connections(names: &[String; 2], application: &str, count: usize) -> Vec<(Side, Side)> {
    let (here, there) = (open(&names[0], application), open(&names[1], application));
    let options = exchange_options();
    let connect = |_| connected((here.clone(), &options), (there.clone(), &options));
    (0..count).map(connect).collect()
}

/// Bytes of a request.
const SLOT: usize = 64;

/// Exchanges requests over all connections at once, of which none goes astray.
fn exchange(pairs: &mut [(Side, Side)], requests: u64, meanwhile: impl FnMut(u64)) {
    let strays = catchment_conformance::exchange(pairs, requests, meanwhile);
    assert_eq!(strays, Strays::default());
}

/// S5.5, S5.7, S5.10: so many connections, so many queue pairs; and not one request of 10^5 goes astray, or of 10^7 in the nightly
/// run.
#[test]
fn s5_7_a_hundred_connections_share_thirteen_queue_pairs() {
    let (_agents, names) = two_agents("many", SHM, 20);
    let mut pairs = connections(&names, "suite", 100);
    let requests = scaled(100_000);
    exchange(&mut pairs, requests, |_| {});
    did("S5.7", requests, "requests of 100 connections");
    let seen = peer(&names);
    assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (100, 13, 0));
    // A region of each, once for its own queue pair and for shared ones.
    let registrations = status(&names[0]).unwrap()[0].registrations;
    assert_eq!(registrations, 100);
}

/// What goes astray is counted: a word where none belongs, and requests that fail.
#[test]
fn requests_that_go_astray_are_counted() {
    let (_agents, names) = two_agents("astray", SHM, 20);
    let mut pairs = connections(&names, "suite", 4);
    pairs[2].1.put(8, &[1]);
    let strays = catchment_conformance::exchange(&mut pairs, 400, |_| {});
    assert_eq!(strays, Strays { misrouted: 1, lost: 0 });
    let mut pairs = connections(&names, "suite", 4);
    pairs[1].1.qp.modify(QpTransition::ToErr).unwrap();
    let strays = catchment_conformance::exchange(&mut pairs[1..2], 40, |_| {});
    assert!(strays.lost > 0, "{strays:?}");
}

/// What an agent says of connections that share is true without a request on any of them: the last one counts too.
#[test]
fn connections_that_send_nothing_are_counted() {
    let (_agents, names) = two_agents("still", SHM, 20);
    let mut pairs = Vec::new();
    for count in 1..=10 {
        pairs.extend(connections(&names, "suite", 1));
        eventually("all connections", || peer(&names).connections == count);
    }
    eventually("their queue pairs", || peer(&names).queue_pairs == 2);
    pairs.truncate(5);
    eventually("those that are left", || peer(&names).connections == 5);
}

/// S5.5: at every ratio that a policy takes, there are as many queue pairs as connections by it, rounded up; at 1 nobody
/// shares, and each connection has its own.
#[test]
fn s5_5_at_every_ratio_connections_have_their_queue_pairs() {
    const COUNT: u32 = 18;
    for ratio in 1..=16 {
        let members = json!({"between": {"ratio": ratio}});
        let devices = (&*format!("ratio-{ratio}"), SHM);
        let (_agents, names) = two_agents_in(&members, devices, (20, 1 << 40));
        let mut pairs = connections(&names, "suite", COUNT as usize);
        exchange(&mut pairs, 360, |_| {});
        let (seen, own) = (peer(&names), status(&names[0]).unwrap()[0].queue_pairs);
        let expected = if ratio == 1 { (0, 0) } else { (COUNT, COUNT.div_ceil(ratio)) };
        assert_eq!((seen.connections, seen.queue_pairs), expected, "ratio {ratio}");
        assert_eq!(own, u64::from(COUNT), "an application sees one for each connection");
    }
}

/// S5.5: where there may be few queue pairs, more connections share one. Over packets this time.
#[test]
fn no_more_queue_pairs_are_made_than_the_policy_allows() {
    let devices = [r#"{"roce": "127.0.0.1"}"#, r#"{"roce": "127.0.0.2"}"#];
    let (_agents, names) = two_agents("few", devices, 2);
    let mut pairs = connections(&names, "suite", 20);
    exchange(&mut pairs, 5_000, |_| {});
    let seen = peer(&names);
    assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (20, 2, 0));
}

/// Shared queue pairs fail again and again at either end: others take over, and every request is done once.
#[test]
fn a_shared_queue_pair_that_fails_takes_nothing_with_it() {
    let (agents, names) = two_agents("fails", SHM, 20);
    let mut pairs = connections(&names, "suite", 16);
    let breaks = |agents: &[Agent; 2], round: u64| {
        if round.is_multiple_of(40) {
            agents[(round / 40 % 2) as usize].break_shared_queue_pairs();
        }
    };
    exchange(&mut pairs, 40_000, |round| breaks(&agents, round));
    let seen = peer(&names);
    assert_eq!(seen.connections, 16);
    assert!(seen.failed > 2, "{seen:?}");
}

/// S5.5, S5.6, S5.22, SHARE: five connections to a queue pair whatever the ratio is, and no rates: a device that does a byte a
/// second is not asked. Nothing goes astray, when they fail neither.
#[test]
fn in_the_mode_share_five_connections_have_a_queue_pair() {
    let (agents, names) = two_agents_in(&json!({"mode": "share"}), ("five", SHM), (20, 1));
    let mut pairs = connections(&names, "suite", 12);
    exchange(&mut pairs, 6_000, |_| {});
    let seen = peer(&names);
    assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (12, 3, 0));
    exchange(&mut pairs, 12_000, |round| {
        if round.is_multiple_of(40) {
            agents[(round / 40 % 2) as usize].break_shared_queue_pairs();
        }
    });
    assert!(peer(&names).failed > 2);
}

/// What sharing costs by itself: the mode `unlimited` shares as the policy says, without rates.
#[test]
fn in_the_mode_unlimited_connections_share_without_rates() {
    let (_agents, names) = two_agents_in(&json!({"mode": "unlimited"}), ("unbound", SHM), (20, 1));
    let mut pairs = connections(&names, "suite", 12);
    exchange(&mut pairs, 6_000, |_| {});
    let seen = peer(&names);
    assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (12, 2, 0));
}

/// JUSTITIA: nothing is shared but the queue pair of the probes; who sends long requests beside somebody who waits for short
/// ones may send as much as the line takes while the latency of the probes is what it shall be, and half of it, with one
/// to protect, where it is not.
#[test]
fn in_the_mode_justitia_a_missed_target_lowers_what_may_be_sent() {
    const LINE: u64 = 1 << 32;
    for (target_us, rate) in [(0, LINE / 2), (10_000_000, LINE)] {
        let members = json!({
            "mode": "justitia", "justitia": {"line_bytes_per_s": LINE, "target_us": target_us}
        });
        let (_agents, names) = two_agents_in(&members, (&format!("late{target_us}"), SHM), (20, 1));
        let mut long = connections(&names, "bad", 1).pop().unwrap();
        let mut short = connections(&names, "good", 1).pop().unwrap();
        // What it may receive is nothing that it moves.
        (0..32).for_each(|n| short.0.post_recv(n, &[]));
        eventually("the rate", || {
            for _ in 0..50 {
                write(&mut long, exchange_options().bytes);
                write(&mut short, 8);
            }
            rates(&names[0], ["bad", "good"]) == [rate, 0]
        });
        let seen = peer(&names);
        assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (0, 1, 0));
    }
}

/// Of those who send long requests each has tokens as its weight says.
#[test]
fn in_the_mode_justitia_tokens_go_by_weights() {
    const LINE: u64 = 1 << 32;
    let rule = |name: &str, weight: u32| json!({"name": name, "weight": weight});
    let members = json!({
        "mode": "justitia", "justitia": {"line_bytes_per_s": LINE, "target_us": 100},
        "applications": [rule("good", 3), rule("bad", 1)]
    });
    let (_agents, names) = two_agents_in(&members, ("weights", SHM), (20, 1));
    let mut pairs = ["good", "bad"].map(|name| connections(&names, name, 1).pop().unwrap());
    eventually("the rates", || {
        for _ in 0..50 {
            pairs.iter_mut().for_each(|pair| write(pair, exchange_options().bytes));
        }
        rates(&names[0], ["good", "bad"]) == [LINE / 4 * 3, LINE / 4]
    });
}

fn write((a, b): &mut (Side, Side), bytes: usize) {
    let sges = [a.sge(0, bytes)];
    a.run_ok(SendOp::Write(b.remote(0)), &sges);
}

/// Returns what an agent has decided for applications, in bytes a second.
fn rates(agent: &str, names: [&str; 2]) -> [u64; 2] {
    let all = status(agent).unwrap();
    names.map(|name| {
        let of = all.iter().find(|one| one.application == name).unwrap();
        of.rate_bytes_per_s as u64
    })
}

/// S5.6, S5.22, RAW: completions come to the connection whose they are, each from a queue of its own. There is nothing to agree on
/// with other hosts.
#[test]
fn in_the_mode_raw_each_connection_has_a_completion_queue() {
    let name = format!("raw-{}", std::process::id());
    let policy = |between: &str| {
        let text = format!(
            r#"{{"name": "{name}", "mode": "raw", "applications": [{{"name": "suite"}}]{between}}}"#
        );
        Policy::parse(&text).unwrap()
    };
    let error = Agent::start(policy(r#", "between": {"listen": "127.0.0.1:0"}"#)).err().unwrap();
    assert!(error.to_string().contains("nothing to agree on"), "{error}");
    let _agent = Agent::start(policy("")).unwrap();
    let names = [name.clone(), name];
    let mut pairs = connections(&names, "suite", 8);
    exchange(&mut pairs, 6_000, |_| {});
}

/// Adds 1 to a word at the peer; returns what was there.
fn add_one((a, b): &mut (Side, Side)) -> Result<u64, WcStatus> {
    let sges = [a.sge(8, 8)];
    let add = SendOp::FetchAdd { remote: b.remote(0), add: 1 };
    a.run(SendWr::new(1, add, Payload::Sges(&sges))).map_err(|failure| failure.status)?;
    Ok(u64::from_ne_bytes(a.get(8, 8).try_into().unwrap()))
}

/// Atomics go over shared queue pairs too, and what they find there comes to who asked.
#[test]
fn atomics_share_queue_pairs() {
    let (_agents, names) = two_agents("atomics", SHM, 20);
    let mut pairs = connections(&names, "suite", 12);
    for n in 0..100 {
        for pair in &mut pairs {
            assert_eq!(add_one(pair), Ok(n));
        }
    }
    for (a, b) in &mut pairs {
        let sges = [a.sge(16, 8)];
        let remote = b.remote(0);
        let (compare, swap) = (100, 7);
        a.run_ok(SendOp::CompareSwap { remote, compare, swap }, &sges);
        assert_eq!([a.get(16, 8), b.get(0, 8)], [100u64.to_ne_bytes(), 7u64.to_ne_bytes()]);
    }
    let seen = peer(&names);
    assert_eq!((seen.connections, seen.queue_pairs, seen.failed), (12, 2, 0));
}

/// Shared queue pairs fail under atomics. None is done twice: one that had no answer fails, with its connection, and
/// nobody else's requests do.
#[test]
fn an_atomic_is_not_done_again_when_its_queue_pair_fails() {
    let (agents, names) = two_agents("unknown", SHM, 1);
    let mut good = connections(&names, "good", 4);
    let mut ended = 0;
    for round in 0..40 {
        let mut pair = connections(&names, "bad", 1).pop().unwrap();
        let mut told = 0;
        let result = loop {
            if told % 20 == 10 {
                agents[round % 2].break_shared_queue_pairs();
            }
            match add_one(&mut pair) {
                Ok(found) => assert_eq!(found, told, "one was done twice, or not at all"),
                Err(status) => break Err(status),
            }
            told += 1;
            if told == 200 {
                break Ok(());
            }
        };
        let done = u64::from_ne_bytes(pair.1.get(0, 8).try_into().unwrap());
        let unknown = u64::from(result.is_err());
        assert!((told..=told + unknown).contains(&done), "{done} of {told}, {result:?}");
        if let Err(status) = result {
            assert_eq!(status, WcStatus::TransportRetryExceeded);
            ended += 1;
        }
        exchange(&mut good, 400, |_| {});
    }
    assert!(ended > 0, "no queue pair failed under an atomic");
}

/// Every wrong request of an application that shares its queue pair with an innocent one fails as it would alone,
/// and fails nothing of the other.
#[test]
fn wrong_requests_fail_only_who_made_them() {
    let (_agents, names) = two_agents("wrong", SHM, 1);
    let mut good = connections(&names, "good", 1);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let innocent = std::thread::spawn(move || {
        let mut rounds = 0;
        while !stopped.load(Ordering::Acquire) {
            exchange(&mut good, 2_000, |_| {});
            rounds += 1;
        }
        rounds
    });
    let plain = exchange_options();
    let deaf = Options { qp_access: Access::REMOTE_READ, ..exchange_options() };
    let fixed =
        Options { access: Access::REMOTE_WRITE | Access::LOCAL_WRITE, ..exchange_options() };
    let (bytes, length) = (plain.bytes as u64, plain.bytes);
    type Wrong = fn(&Side, &Side, u64) -> (SendOp, u32, u64);
    let local = WcStatus::LocalProtection;
    let remote = WcStatus::RemoteAccess;
    let cases: [(&Options, Wrong, WcStatus); 8] = [
        (&plain, |_, b, _| (SendOp::Write(b.remote(0)), 77, 0), local),
        (&plain, |a, b, bytes| (SendOp::Write(b.remote(0)), a.mr.lkey(), bytes - 4), local),
        (&plain, |a, b, _| (SendOp::Write(b.remote(0)), a.mr.lkey(), u64::MAX - 4), local),
        (&plain, |a, b, bytes| (SendOp::Write(at(b, bytes - 4)), a.mr.lkey(), 0), remote),
        (&plain, |a, b, _| (SendOp::Read(at(b, u64::MAX - 4)), a.mr.lkey(), 0), remote),
        (
            &plain,
            |a, b, _| (SendOp::Write(RemoteAddr { rkey: 77, ..b.remote(0) }), a.mr.lkey(), 0),
            remote,
        ),
        (&deaf, |a, b, _| (SendOp::Write(b.remote(0)), a.mr.lkey(), 0), remote),
        (&fixed, |a, b, _| (SendOp::Read(b.remote(0)), a.mr.lkey(), 0), remote),
    ];
    for (case, (options, wrong, status)) in cases.into_iter().enumerate() {
        let (mut a, b) =
            connected((open(&names[0], "bad"), &plain), (open(&names[1], "bad"), options));
        let (op, lkey, offset) = wrong(&a, &b, bytes);
        let addr = a.mr.addr().wrapping_add(offset);
        let sges = [catchment_verbs::Sge { addr, bytes: 8, lkey }];
        let failure = a.run(SendWr::new(9, op, Payload::Sges(&sges))).unwrap_err();
        // Of what the queue pair does not allow, a responder may say either (IBTA 9.7.5.2).
        let denied = (failure.status, status) == (WcStatus::RemoteInvalidRequest, remote);
        assert!(failure.status == status || denied, "case {case}: {failure:?}");
        assert_eq!(b.get(0, length), vec![0; length], "case {case}");
    }
    stop.store(true, Ordering::Release);
    assert!(innocent.join().unwrap() > 0);
    assert_eq!((peer(&names).queue_pairs, peer(&names).failed), (1, 0));
}

fn at(side: &Side, offset: u64) -> RemoteAddr {
    let remote = side.remote(0);
    RemoteAddr { addr: remote.addr.wrapping_add(offset), ..remote }
}

/// A region ends while a peer writes to it: nothing is written after that, and the queue pair that others share
/// does not fail.
#[test]
fn a_region_ends_under_the_writes_of_a_peer() {
    end_regions_under_writes("ends", SHM);
}

/// The same of a slice of a memory chunk, which stays registered.
#[test]
fn a_slice_ends_under_the_writes_of_a_peer() {
    end_regions_under_writes("slice-ends", ROCE);
}

fn end_regions_under_writes(kind: &str, devices: [&str; 2]) {
    // What an agent warned of is shown where this fails; another test may have begun that.
    let to_test = tracing_subscriber::fmt().with_test_writer().with_max_level(tracing::Level::WARN);
    let _ = to_test.try_init();
    let (_agents, names) = two_agents(kind, devices, 1);
    let mut other = connections(&names, "good", 1);
    for round in 0..20u64 {
        let (mut a, b) = connections(&names, "bad", 1).pop().unwrap();
        let mr = b.pd.alloc_mr(SLOT, ALL).unwrap();
        let (region, to) =
            (Arc::clone(mr.region()), RemoteAddr { addr: mr.addr(), rkey: mr.rkey() });
        a.put(0, &[1; SLOT]);
        let sges = [a.sge(0, SLOT)];
        let write = SendWr::new(round, SendOp::Write(to), Payload::Sges(&sges));
        let (mut failed, mut done) = (None, 0);
        a.post(write);
        assert!(wait_one(&*a.send_cq).result.is_ok());
        (0..32).for_each(|_| a.post(write));
        drop(mr);
        region.whole().write_at(0, &[0; SLOT]).unwrap();
        for _ in 0..32 {
            let result = wait_one(&*a.send_cq).result;
            failed = failed.or(result.err());
            done += u32::from(failed.is_none());
        }
        if failed.is_none() {
            failed = a.run(write).err();
        }
        let status = failed.unwrap().status;
        assert_eq!(status, WcStatus::RemoteAccess, "in round {round}, after {done} of 32");
        assert_eq!(region.whole().to_vec(), [0; SLOT], "written after it ended");
        exchange(&mut other, 100, |_| {});
    }
    assert_eq!(peer(&names).failed, 0);
}

/// The second process: an application that is written to until it is killed.
#[test]
fn second_process() {
    let Some(role) = role() else { return };
    let (agent, endpoint) = role.split_once(' ').unwrap();
    let mut side = Side::new(open(agent, "bad"), &exchange_options());
    let remote = side.remote(0);
    say(&format!("{} {} {}", side.qp.endpoint(), remote.addr, remote.rkey));
    let endpoint: Endpoint = endpoint.parse().unwrap();
    side.connect(endpoint, &exchange_options());
    say("connected");
    std::io::stdin().lines().for_each(drop);
}

/// An application dies that is written to over a queue pair that others share: who writes to it has an error,
/// nobody else has.
#[test]
fn an_application_that_is_killed_fails_only_its_own_connections() {
    kill_applications("killed", SHM);
}

/// So it is of one whose memory is in chunks: these stay registered until the agents of its peers have let go.
#[test]
fn an_application_with_memory_chunks_that_is_killed_fails_only_its_own_connections() {
    kill_applications("chunk-killed", ROCE);
}

fn kill_applications(kind: &str, devices: [&str; 2]) {
    let (_agents, names) = two_agents(kind, devices, 1);
    let mut other = connections(&names, "good", 1);
    for _ in 0..5 {
        let mut side = Side::new(open(&names[0], "bad"), &exchange_options());
        let role = format!("{} {}", names[1], side.qp.endpoint());
        let mut process = Child::start("second_process", &role);
        let line = process.hear();
        let mut words = line.split(' ');
        let endpoint: Endpoint = words.next().unwrap().parse().unwrap();
        let [addr, rkey] = [(); 2].map(|()| words.next().unwrap().parse::<u64>().unwrap());
        side.connect(endpoint, &exchange_options());
        assert_eq!(process.hear(), "connected");
        let to = RemoteAddr { addr, rkey: rkey as u32 };
        let sges = [side.sge(0, SLOT)];
        let write = SendWr::new(1, SendOp::Write(to), Payload::Sges(&sges));
        side.run(write).unwrap();
        (0..32).for_each(|_| side.post(write));
        process.kill();
        exchange(&mut other, 2_000, |_| {});
        let until = Instant::now() + Duration::from_secs(60);
        let _ = wait_some(&*side.send_cq, 32);
        while side.run(write).is_ok() {
            assert!(Instant::now() < until, "nobody said that it is gone");
        }
    }
    eventually("the end of theirs", || peer(&names).connections == 1);
    assert_eq!(peer(&names).failed, 0);
}
