//! Nothing leaks, whatever the order of destruction and wherever creation fails.
//!
//! Descriptors, mappings and threads are counted in a process of its own, where no other test runs.
use crate::{ALL, Bench, Options, Random, Side, connected, eventually, start, wait_one};
use catchment_probe::child::say;
use catchment_verbs::{Endpoint, Payload, QpInit, RecvWr, RtrAttr, SendOp, SendWr};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::any::Any;
use std::error::Error;

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holdings {
    descriptors: usize,
    shared_mappings: usize,
    threads: usize,
}

impl Holdings {
    /// Counts now.
    pub fn now() -> Self {
        let entries = |path| std::fs::read_dir(path).unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            descriptors: entries("/proc/self/fd"),
            shared_mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
            threads: entries("/proc/self/task"),
        }
    }

    /// Waits until no more is held than this: a peer's service may act a little later.
    pub fn assert_back(self) {
        let deadline = std::time::Instant::now() + crate::PATIENCE;
        loop {
            let now = Self::now();
            if now.descriptors <= self.descriptors
                && now.shared_mappings <= self.shared_mappings
                && now.threads <= self.threads
            {
                return;
            }
            let late = std::time::Instant::now() >= deadline;
            assert!(!late, "held before: {self:?}, held now: {now:?}");
            // Until the service of the peer has cleaned up, which no event reports.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// S3.3: counts are as before after a thousand connections.
pub fn nothing_is_left_of_a_thousand_connections(_bench: &Bench) {
    start("connections").says("done");
}

/// The child of [`nothing_is_left_of_a_thousand_connections`].
pub fn connections(bench: &Bench) {
    let options = Options { bytes: 64 << 10, ..Options::default() };
    let (left, right) = (bench.open(), bench.open());
    let round = |n: u64| {
        // Every tenth time the devices are opened anew too.
        let (left, right) = match n % 10 {
            0 => (bench.open(), bench.open()),
            _ => (left.clone(), right.clone()),
        };
        let (mut a, mut b) = connected((left, &options), (right, &options));
        use_everything(&mut a, &mut b);
    };
    (0..20).for_each(round);
    let before = Holdings::now();
    crate::rounds_while_quick(1000).for_each(round);
    before.assert_back();
    say("done");
}

/// A little of each operation, and some requests that stay outstanding.
fn use_everything(a: &mut Side, b: &mut Side) {
    let (sge, place) = (a.sge(0, 8), b.sge(0, 8));
    a.run_ok(SendOp::Write(b.remote(0)), &[sge]);
    a.run_ok(SendOp::Read(b.remote(0)), &[sge]);
    b.post_recv(1, &[place]);
    a.run_ok(SendOp::Send, &[sge]);
    wait_one(&*b.recv_cq);
    if let Some(watch) = b.mr.watch() {
        watch.arm();
    }
    if crate::watches_afar(a.context.caps()) {
        a.qp.watch_remote(b.mr.rkey()).unwrap().arm();
    }
    if a.context.caps().direct {
        let at = b.remote(0);
        a.qp.map_remote(at.addr, 8, at.rkey).unwrap().bell.ring();
    }
    a.recv_cq.req_notify(false);
    a.post_recv(3, &[sge]);
    a.post(SendWr::new(2, SendOp::Send, Payload::Sges(&[sge])));
}

/// S3.14: every order, with requests outstanding on both sides.
pub fn objects_may_be_dropped_in_any_order(_bench: &Bench) {
    start("drops").says("done");
    start("starving").says("done");
}

/// The first child of [`objects_may_be_dropped_in_any_order`].
pub fn drops(bench: &Bench) {
    let mut random = Random::new(7);
    let mut round = |_: u64| {
        let options = Options { bytes: 64 << 10, ..Options::default() };
        let (mut a, mut b) = bench.pair_with(&options, &options);
        use_everything(&mut a, &mut b);
        let mut parts: Vec<Box<dyn Any>> = Vec::new();
        for side in [a, b] {
            parts.push(Box::new(side.qp));
            parts.push(Box::new(side.mr.watch()));
            parts.push(Box::new(side.mr));
            parts.push(Box::new(side.send_cq));
            parts.push(Box::new(side.recv_cq));
            parts.push(Box::new(side.channel));
            parts.push(Box::new(side.pd));
            parts.push(Box::new(side.context));
        }
        while !parts.is_empty() {
            drop(parts.swap_remove(random.below(parts.len() as u64) as usize));
        }
    };
    (0..5).for_each(&mut round);
    let before = Holdings::now();
    (0..crate::rounds(200)).for_each(&mut round);
    before.assert_back();
    say("done");
}

/// The second child: each step of creation and connecting fails once for want of a descriptor.
pub fn starving(bench: &Bench) {
    drop(try_everything(bench));
    let before = Holdings::now();
    let old = getrlimit(Resource::Nofile);
    let (mut failures, mut successes) = (0, 0);
    for spare in 0..120 {
        let limit = Rlimit { current: Some(before.descriptors as u64 + spare), ..old };
        setrlimit(Resource::Nofile, limit).unwrap();
        match try_everything(bench) {
            Ok(()) => successes += 1,
            Err(_) => failures += 1,
        }
        setrlimit(Resource::Nofile, old).unwrap();
        before.assert_back();
    }
    assert!(failures > 5, "{failures} failures: nothing was starved");
    assert!(successes > 5, "{successes} successes: it never recovered");
    say("done");
}

/// Like a program that checks every result.
fn try_everything(bench: &Bench) -> Result<(), Box<dyn Error>> {
    let mut sides = Vec::new();
    for _ in 0..2 {
        let context = bench.provider.open(&bench.device)?;
        let pd = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq(16, Some(channel.clone()))?;
        let mr = pd.alloc_mr(4096, ALL)?;
        sides.push((pd.create_qp(QpInit::rc(&cq, 8, 8))?, mr, cq, channel, pd, context));
    }
    let ends: Vec<Endpoint> = sides.iter().map(|side| side.0.endpoint()).collect();
    for (side, peer) in sides.iter_mut().zip(ends.iter().rev()) {
        side.0.connect(ALL, RtrAttr::new(*peer), Default::default())?;
    }
    let (first, second) = sides.split_at_mut(1);
    let ((a, amr, acq, ..), (b, bmr, ..)) = (&mut first[0], &mut second[0]);
    let sges = [catchment_verbs::Sge { addr: amr.addr(), bytes: 8, lkey: amr.lkey() }];
    b.post_recv(&[RecvWr { wr_id: 1, sges: &[] }])?;
    let at = catchment_verbs::RemoteAddr { addr: bmr.addr(), rkey: bmr.rkey() };
    a.post_send(&[SendWr::new(1, SendOp::Write(at), Payload::Sges(&sges))])?;
    let mut out = [catchment_verbs::Completion::EMPTY];
    eventually("a completion", || acq.poll(&mut out).unwrap() == 1);
    out[0].result.map_err(|failure| failure.status)?;
    Ok(())
}

/// A request that waits keeps its memory mapped after its region was deregistered.
pub fn a_request_keeps_its_memory(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    let data = crate::pattern(3, 3000);
    let mr = a.pd.alloc_mr(3000, ALL).unwrap();
    mr.region().whole().write_at(0, &data).unwrap();
    let sge = catchment_verbs::Sge { addr: mr.addr(), bytes: 3000, lkey: mr.lkey() };
    a.post(SendWr::new(1, SendOp::Send, Payload::Sges(std::slice::from_ref(&sge))));
    drop(mr);
    b.post_recv(2, &[b.sge(0, 3000)]);
    // Verbs leave open whether it is still sent, not whether it may crash or send other bytes.
    if wait_one(&*a.send_cq).result.is_ok() {
        assert!(wait_one(&*b.recv_cq).result.is_ok());
        assert_eq!(b.get(0, 3000), data);
    }
}
