//! Sleeping: completion channels, watches, mapped memory.
use crate::{
    ALL, Bench, Deviation, Options, PATIENCE, Side, connected, eventually, pattern, sleep_for,
    wait_one,
};
use catchment_verbs::{
    Access, Completion, Cq, Payload, RemoteMapError, SendOp, SendWr, Wake, Watch, WcStatus,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(30);

/// Takes completions of sends, so that the queue does not fill.
fn drain(cq: &dyn Cq) {
    let mut out = [Completion::EMPTY; 16];
    while cq.poll(&mut out).unwrap() > 0 {
        assert!(out.iter().take(1).all(|c| c.result.is_ok()), "{out:?}");
    }
}

fn ping(side: &mut Side, rounds: u64, first: bool) {
    let (sge, place) = (side.sge(0, 8), side.sge(64, 8));
    for n in 0..rounds {
        // The receive of the next round is there before this round ends.
        let receive = |side: &mut Side| {
            let done = sleep_for(&*side.channel, &*side.recv_cq, 1)[0];
            assert!(done.wr_id == n && done.result.is_ok(), "{done:?}");
            assert_eq!(side.get(64, 8), n.to_ne_bytes());
            side.post_recv(n + 1, &[place]);
        };
        if !first {
            receive(side);
        }
        side.put(0, &n.to_ne_bytes());
        side.post(SendWr::new(n, SendOp::Send, Payload::Sges(&[sge])));
        drain(&*side.send_cq);
        if first {
            receive(side);
        }
    }
}

/// S3.12: both sides sleep on their channels; every message wakes its receiver.
pub fn no_wake_up_is_lost_in_ping_pong(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    for side in [&mut a, &mut b] {
        side.post_recv(0, &[side.sge(64, 8)]);
    }
    let rounds = crate::rounds(5_000);
    thread::scope(|scope| {
        scope.spawn(|| ping(&mut a, rounds, true));
        scope.spawn(|| ping(&mut b, rounds, false));
    });
}

/// One request for notification, one event, however many completions come.
pub fn one_notification_gives_one_event(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    let (sge, place) = (a.sge(0, 8), b.sge(0, 8));
    for n in 0..4 {
        b.post_recv(n, &[place]);
    }
    assert!(!b.channel.wait(SHORT).unwrap(), "none was requested");
    b.recv_cq.req_notify(false);
    let wr = SendWr::new(1, SendOp::Send, Payload::Sges(std::slice::from_ref(&sge)));
    a.post(wr);
    a.post(wr);
    assert!(b.channel.wait(PATIENCE).unwrap());
    wait_one(&*b.recv_cq);
    wait_one(&*b.recv_cq);
    a.post(wr);
    assert!(!b.channel.wait(SHORT).unwrap(), "requested once, notified twice");
    // What came before the request is found by polling once more, as documented.
    b.recv_cq.req_notify(false);
    wait_one(&*b.recv_cq);
}

/// Only solicited messages and failures wake a sleeper that requested these.
pub fn solicited_only_ignores_the_rest(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    let (sge, place) = (a.sge(0, 8), b.sge(0, 8));
    for n in 0..4 {
        b.post_recv(n, &[place]);
    }
    b.recv_cq.req_notify(true);
    let wr = SendWr::new(1, SendOp::Send, Payload::Sges(std::slice::from_ref(&sge)));
    if bench.deviations.contains(&Deviation::EveryMessageIsSolicited) {
        a.post(SendWr { solicited: true, ..wr });
    } else {
        a.post(wr);
        assert!(!b.channel.wait(SHORT).unwrap(), "not solicited");
    }
    a.post(SendWr { solicited: true, ..wr });
    assert!(b.channel.wait(PATIENCE).unwrap());
    wait_one(&*b.recv_cq);
    wait_one(&*b.recv_cq);
    b.recv_cq.req_notify(true);
    b.qp.modify(catchment_verbs::QpTransition::ToErr).unwrap();
    assert!(b.channel.wait(PATIENCE).unwrap(), "failures are solicited");
}

/// Another thread wakes the sleeper, before it sleeps or while it does, once.
pub fn a_sleeper_can_be_woken(bench: &Bench) {
    let (a, _b) = bench.pair();
    a.channel.wake();
    assert!(a.channel.wait(PATIENCE).unwrap(), "it will sleep");
    assert!(!a.channel.wait(SHORT).unwrap(), "woken once, notified twice");
    for _ in 0..crate::rounds(200) {
        thread::scope(|scope| {
            scope.spawn(|| a.channel.wake());
            assert!(a.channel.wait(PATIENCE).unwrap(), "it sleeps");
        });
    }
}

/// RNR, and the sender's thread sleeps.
pub fn a_sleeping_sender_wakes_when_a_receive_is_posted(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    for early in [false, true] {
        let (sge, place) = (a.sge(0, 8), b.sge(0, 8));
        if early {
            a.send_cq.req_notify(false);
        }
        a.post(SendWr::new(1, SendOp::Send, Payload::Sges(&[sge])));
        let (channel, send_cq) = (a.channel.clone(), a.send_cq.clone());
        thread::scope(|scope| {
            let sender = scope.spawn(|| sleep_for(&*channel, &*send_cq, 1)[0]);
            // Until the other thread sleeps, most likely: a sleeper cannot announce it.
            thread::sleep(Duration::from_millis(20));
            b.post_recv(2, &[place]);
            let done = sender.join().unwrap();
            assert!(done.wr_id == 1 && done.result.is_ok(), "{done:?}");
        });
        assert_eq!(wait_one(&*b.recv_cq).wr_id, 2);
    }
}

/// A message longer than any buffer between two sleepers.
pub fn a_long_message_moves_while_both_sides_sleep(bench: &Bench) {
    let options = Options { bytes: 8 << 20, ..Options::default() };
    let (mut a, mut b) = bench.pair_with(&options, &options);
    let data = pattern(4, 5_000_001);
    a.put(0, &data);
    let (sge, place) = (a.sge(0, data.len()), b.sge(0, data.len()));
    b.post_recv(1, &[place]);
    thread::scope(|scope| {
        scope.spawn(|| {
            a.post(SendWr::new(1, SendOp::Send, Payload::Sges(&[sge])));
            assert!(sleep_for(&*a.channel, &*a.send_cq, 1)[0].result.is_ok());
        });
        let done = sleep_for(&*b.channel, &*b.recv_cq, 1)[0];
        assert_eq!(done.result.unwrap().bytes, data.len() as u64);
    });
    assert!(b.get(0, data.len()) == data);
}

fn watch_of(side: &Side) -> Option<Arc<dyn Watch>> {
    let watch = side.mr.watch();
    assert_eq!(watch.is_some(), side.context.caps().doorbell);
    watch
}

/// Armed: the next WRITE rings. Not armed: nothing rings.
pub fn a_watch_wakes_after_a_write(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let Some(watch) = watch_of(&b) else { return };
    let sge = a.sge(0, 8);
    a.run_ok(SendOp::Write(b.remote(0)), &[sge]);
    assert_eq!(watch.wait(SHORT).unwrap(), Wake::TimedOut, "not armed");
    watch.arm();
    watch.disarm();
    a.run_ok(SendOp::Write(b.remote(0)), &[sge]);
    assert_eq!(watch.wait(SHORT).unwrap(), Wake::TimedOut, "disarmed");
    watch.arm();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| watch.wait(PATIENCE).unwrap());
        // Until the other thread sleeps, most likely: a sleeper cannot announce it.
        thread::sleep(Duration::from_millis(10));
        a.run_ok(SendOp::Write(b.remote(0)), &[sge]);
        assert_eq!(sleeper.join().unwrap(), Wake::Rung);
        let sleeper = scope.spawn(|| watch.wait(PATIENCE).unwrap());
        watch.wake();
        assert_eq!(sleeper.join().unwrap(), Wake::Rung);
    });
    assert_eq!(watch.wait(Duration::ZERO).unwrap(), Wake::TimedOut);
}

/// WRITEs to the ends of pieces ring, and those before the first piece. Others may.
pub fn a_watch_of_ends_wakes_after_a_write_to_one(bench: &Bench) {
    let (mut a, b) = bench.pair();
    if watch_of(&b).is_none() {
        return;
    }
    let watch = b.mr.watch_ends(128, 256).unwrap();
    let sge = a.sge(0, 64);
    // Before the first piece, at the end of one, over the end of one.
    for at in [64, 128 + 192, 128 + 256 + 224] {
        watch.arm();
        a.run_ok(SendOp::Write(b.remote(at)), &[sge]);
        assert_eq!(watch.wait(PATIENCE).unwrap(), Wake::Rung, "at {at}");
    }
}

fn volley(side: &mut Side, to: catchment_verbs::RemoteAddr, rounds: u64, first: bool) {
    let watch = side.mr.watch().unwrap();
    let mr = side.mr.clone();
    let wait = |n: u64| {
        let seen = || mr.region().whole().load_u64(64, Ordering::Acquire).unwrap();
        while seen() < n {
            watch.arm();
            if seen() < n {
                assert_eq!(watch.wait(PATIENCE).unwrap(), Wake::Rung, "lost, round {n}");
            }
        }
    };
    for n in 1..=rounds {
        if !first {
            wait(n);
        }
        let value = n.to_ne_bytes();
        let wr = SendWr::new(n, SendOp::Write(to), Payload::Inline(&value));
        assert!(side.run(wr).is_ok());
        if first {
            wait(n);
        }
    }
}

/// Two sleepers on memory, woken by WRITEs only.
pub fn no_watch_is_lost_in_ping_pong(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    if watch_of(&a).is_none() {
        return;
    }
    let (to_a, to_b) = (a.remote(64), b.remote(64));
    let rounds = crate::rounds(5_000);
    thread::scope(|scope| {
        scope.spawn(|| volley(&mut a, to_b, rounds, true));
        scope.spawn(|| volley(&mut b, to_a, rounds, false));
    });
}

/// `Mr::notify` rings every armed watcher; dropping the region rings too.
pub fn the_owner_wakes_who_watches_from_afar(bench: &Bench) {
    let (a, b) = bench.pair();
    let key = b.mr.rkey();
    if !crate::watches_afar(a.context.caps()) {
        assert!(matches!(a.qp.watch_remote(key), Err(RemoteMapError::Unsupported)));
        return;
    }
    let options = Options::default();
    let (c, d) = connected((b.context.clone(), &options), (bench.open(), &options));
    // `d` watches a region of the same context and another domain: refused.
    assert!(matches!(
        d.qp.watch_remote(key),
        Err(RemoteMapError::Refused { status: WcStatus::RemoteAccess, .. })
    ));
    let (first, second) =
        (a.qp.watch_remote(key).unwrap(), d.qp.watch_remote(c.mr.rkey()).unwrap());
    b.mr.notify();
    assert_eq!(first.wait(SHORT).unwrap(), Wake::TimedOut, "not armed");
    first.arm();
    second.arm();
    b.mr.notify();
    assert_eq!(first.wait(PATIENCE).unwrap(), Wake::Rung);
    assert_eq!(second.wait(SHORT).unwrap(), Wake::TimedOut, "another region");
    first.arm();
    drop(b);
    assert_eq!(first.wait(PATIENCE).unwrap(), Wake::Rung);
    c.mr.notify();
    assert_eq!(second.wait(PATIENCE).unwrap(), Wake::Rung);
}

/// What is stored through the window is in the peer's memory, and the bell rings there.
pub fn a_mapped_region_is_the_peers_memory(bench: &Bench) {
    let (a, b) = bench.pair();
    let at = b.remote(4096);
    let window = a.qp.map_remote(at.addr, 100, at.rkey);
    if !a.context.caps().direct {
        assert!(matches!(window, Err(RemoteMapError::Unsupported)));
        return;
    }
    let window = window.unwrap();
    assert_eq!(window.memory.bytes(), 100);
    let memory = window.memory.memory();
    memory.write_at(10, b"in place").unwrap();
    assert!(memory.write_at(93, b"in place").is_err());
    assert_eq!(b.get(4106, 8), b"in place");
    if let Some(watch) = watch_of(&b) {
        window.bell.ring();
        assert_eq!(watch.wait(SHORT).unwrap(), Wake::TimedOut);
        watch.arm();
        window.bell.ring();
        assert_eq!(watch.wait(PATIENCE).unwrap(), Wake::Rung);
    }
    assert!(window.bell.is_valid());
    drop(b);
    assert!(!window.bell.is_valid());
    let mut seen = [0; 8];
    memory.read_at(10, &mut seen).unwrap();
    assert_eq!(&seen, b"in place", "it stays mapped");
    eventually("the queue pair to notice", || a.qp.map_remote(at.addr, 100, at.rkey).is_err());
}

/// Bounds, keys and rights count for mapping as for WRITE and READ.
pub fn a_mapped_region_has_the_rights_of_its_key(bench: &Bench) {
    if !bench.caps().direct {
        return;
    }
    let (a, b) = bench.pair();
    let end = b.mr.bytes() as u64;
    let good = b.remote(0);
    for (addr, bytes, rkey) in [
        (good.addr - 1, 8, good.rkey),
        (good.addr + end - 7, 8, good.rkey),
        (good.addr, end + 1, good.rkey),
        (good.addr, u64::MAX, good.rkey),
        (good.addr, 8, good.rkey ^ 1 << 20),
    ] {
        let refused = a.qp.map_remote(addr, bytes, rkey).err();
        assert!(
            matches!(refused, Some(RemoteMapError::Refused { status: WcStatus::RemoteAccess, .. })),
            "{refused:?}"
        );
    }
    let read_only = b.pd.alloc_mr(4096, Access::REMOTE_READ).unwrap();
    let window = a.qp.map_remote(read_only.addr(), 4096, read_only.rkey()).unwrap();
    assert!(window.memory.memory().write_at(0, b"x").is_err());
    let local = b.pd.alloc_mr(4096, Access::LOCAL_WRITE).unwrap();
    assert!(a.qp.map_remote(local.addr(), 8, local.rkey()).is_err());
    let unconnected = bench.side(&Options::default());
    assert!(matches!(
        unconnected.qp.map_remote(good.addr, 8, good.rkey),
        Err(RemoteMapError::State(_))
    ));
    assert_eq!(b.mr.access(), ALL);
}
