//! What a device is beyond verbs: ports, counters, faults.
use crate::common::{any_port, open_two};

use catchment_conformance::{Options, Random, Side, connected, eventually, pattern, wait_one};
use catchment_provider_roce::{RoceContext, RoceOptions, RoceProvider};
use catchment_roce::wire::{DropReason, PathMtu, ROCE_PORT};
use catchment_verbs::{Endpoint, Provider, QpTransition, RtrAttr, RtsAttr, SendOp, Wake, WcStatus};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

fn pair_of(devices: [&Arc<RoceContext>; 2], options: &Options) -> (Side, Side) {
    let [left, right] = devices.map(Arc::clone);
    connected((left, options), (right, options))
}

/// Two devices of one process at the port that RNICs know.
#[test]
fn two_addresses_of_a_host_share_the_port_of_roce() {
    let [left, right] = open_two(["127.0.71.1", "127.0.71.2"], RoceOptions::default());
    assert_eq!(left.local_address().port(), ROCE_PORT);
    let (mut a, b) = pair_of([&left, &right], &Options::default());
    let end = a.qp.endpoint();
    assert_eq!(end.gid.to_string(), "00000000000000000000ffff7f004701");
    let net = end.net.unwrap();
    assert_eq!((net.udp_port, net.path_mtu, net.extensions & 0xff), (4791, 4096, 3));
    assert!(net.window_bytes().is_some() && net.source_port().is_some_and(|port| port >= 0xc000));
    a.put(0, &pattern(1, 100_000));
    a.run_ok(SendOp::Write(b.remote(8)), &[a.sge(0, 100_000)]);
    assert!(b.get(8, 100_000) == pattern(1, 100_000));
    let (sent, received) = (left.counters(), right.counters());
    assert!(sent.protocol.bytes_sent >= 100_000, "{sent:?}");
    assert!(received.protocol.bytes_received >= 100_000, "{received:?}");
    assert_eq!(sent.queue_pairs, 1);
    assert!(!sent.gso || sent.gso_ratio() > 1.5, "{sent:?}");
}

/// A part of a block wakes nobody: who would look for it finds no commit word.
#[test]
fn writes_between_the_ends_of_pieces_ring_nobody_where_only_ends_do() {
    let [left, right] = open_two(["127.0.75.1", "127.0.75.2"], RoceOptions::default());
    let (mut a, b) = pair_of([&left, &right], &Options::default());
    let (from, every) = (4096, 64 << 10);
    let watch = b.mr.watch_ends(from, every).unwrap();
    let mut rings = |offset: usize, bytes: usize| {
        watch.arm();
        a.run_ok(SendOp::Write(b.remote(offset)), &[a.sge(0, bytes)]);
        // The engine rings before it acknowledges.
        watch.wait(Duration::ZERO).unwrap() == Wake::Rung
    };
    assert!(!rings(from, every - 64) && !rings(from + every, 32 << 10), "not the last line");
    assert!(rings(from + every - 64, 64), "the last line");
    assert!(rings(from, every), "a whole piece");
    assert!(rings(0, 1), "before the first piece");
}

/// Answers to one request are more than fit into one batch: the rest follows by itself.
#[test]
fn a_long_read_is_answered_without_being_asked_for_again() {
    let small = RoceOptions { path_mtu: Some(PathMtu::Mtu256), ..RoceOptions::default() };
    let [left, right] = open_two(["127.0.74.1", "127.0.74.2"], small);
    let (mut a, b) = pair_of([&left, &right], &Options::default());
    b.put(0, &pattern(2, 100_000));
    let sge = a.sge(0, 100_000);
    // On a busy machine an answer may be late once, but not each time.
    let smooth = (0..10).any(|_| {
        let before = left.counters().protocol;
        a.run_ok(SendOp::Read(b.remote(0)), &[sge]);
        let after = left.counters().protocol;
        (after.reads_repeated, after.probes, after.timeouts)
            == (before.reads_repeated, before.probes, before.timeouts)
    });
    assert!(smooth, "{:?}", left.counters().protocol);
    assert!(a.get(0, 100_000) == pattern(2, 100_000));
}

/// An endpoint without a network part is an RNIC's: port 4791, no extensions.
#[test]
fn a_peer_that_says_nothing_of_its_network_is_taken_for_an_rnic() {
    let options = Options::default();
    let devices = open_two(["127.0.72.1", "127.0.72.2"], RoceOptions::default());
    let [mut a, mut b] = devices.map(|device| Side::new(device, &options));
    let plain = |end: Endpoint| Endpoint { net: None, ..end };
    let (ea, eb) = (plain(a.qp.endpoint()), plain(b.qp.endpoint()));
    a.connect(eb, &options);
    b.connect(ea, &options);
    a.put(0, b"go-back-N");
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, 9)]);
    assert_eq!(b.get(0, 9), b"go-back-N");
}

#[test]
fn a_taken_port_is_an_error_that_names_owner_and_remedy() {
    let _owner = UdpSocket::bind("127.0.73.1:4791").unwrap();
    let provider = RoceProvider::new(RoceOptions::default());
    let error = provider.open("127.0.73.1").err().unwrap().to_string();
    assert!(error.contains("127.0.73.1:4791"), "{error}");
    assert!(error.contains(&std::process::id().to_string()), "{error}");
    // Between our own peers any other port does.
    provider.open("127.0.73.1:0").unwrap();
    for wrong in ["0.0.0.0", "192.0.2.77", "no-such-interface"] {
        assert!(provider.open(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_taken_port_is_stepped_around_where_that_is_asked_for() {
    let first = RoceProvider::new(any_port()).open_device("127.0.73.2").unwrap();
    let other = RoceProvider::new(RoceOptions {
        port: first.local_address().port(),
        other_port: true,
        ..RoceOptions::default()
    });
    let other = other.open_device("127.0.73.2").unwrap();
    assert_ne!(other.local_address(), first.local_address());
    assert_ne!(other.local_address().port(), 0);
}

/// Packets from elsewhere, of another kind, or damaged change nothing and are counted.
#[test]
fn packets_that_are_none_are_dropped_and_counted() {
    let context = RoceProvider::new(any_port()).open_device("127.0.74.1").unwrap();
    let stranger = UdpSocket::bind("127.0.74.2:0").unwrap();
    for bytes in [&b"abc"[..], &[0; 16], &[0x5a; 100]] {
        stranger.send_to(bytes, context.local_address()).unwrap();
    }
    eventually("looking at three packets", || context.counters().received.packets >= 3);
    let counters = context.counters();
    assert_eq!(counters.dropped(DropReason::TooShort), 1, "{counters:?}");
    assert_eq!(counters.dropped(DropReason::Icrc), 2, "{counters:?}");
}

fn faulty(fault: &str) -> RoceOptions {
    RoceOptions { fault: Some(fault.parse().unwrap()), ..any_port() }
}

fn run_through(fault: &str, bytes: usize) -> (Arc<RoceContext>, Arc<RoceContext>) {
    run_over(fault, bytes, faulty(fault))
}

fn run_over(
    fault: &str,
    bytes: usize,
    faulty: RoceOptions,
) -> (Arc<RoceContext>, Arc<RoceContext>) {
    let devices = RoceProvider::new(faulty.clone()).devices().unwrap();
    assert!(devices[0].description.contains("FAULTS"), "a device with faults says so");
    let [left, right] = open_two(["127.0.0.1"; 2], faulty);
    let options = Options { bytes: 4 << 20, ..Options::default() };
    let (mut a, mut b) = pair_of([&left, &right], &options);
    let mut random = Random::new(9);
    for round in 0..20 {
        let data = pattern(random.next_u64(), bytes);
        a.put(0, &data);
        let sge = a.sge(0, bytes);
        a.run_ok(SendOp::Write(b.remote(16)), &[sge]);
        assert!(b.get(16, bytes) == data, "{fault}, write {round}");
        a.run_ok(SendOp::Read(b.remote(16)), &[a.sge(1 << 20, bytes)]);
        assert!(a.get(1 << 20, bytes) == data, "{fault}, read {round}");
        b.post_recv(round, &[b.sge(2 << 20, bytes)]);
        a.run_ok(SendOp::Send, &[sge]);
        assert!(wait_one(&*b.recv_cq).result.is_ok());
        assert!(b.get(2 << 20, bytes) == data, "{fault}, send {round}");
    }
    (left, right)
}

/// Whatever the network does to packets, the right bytes arrive.
#[test]
fn injected_faults_are_survived() {
    for fault in [
        "drop=0.02,seed=1",
        "reorder=0.1,dup=0.1,seed=2",
        "corrupt=0.02,bad-icrc=0.01,seed=3",
        "nak-storm,seed=4",
        "drop=0.01,reorder=0.05,dup=0.05,corrupt=0.01,stall-ack=200us,seed=5",
    ] {
        let (left, right) = run_through(fault, 200_000);
        let sum = |of: fn(&catchment_provider_roce::FaultCounters) -> u64| {
            [left.counters().faults, right.counters().faults].iter().flatten().map(of).sum::<u64>()
        };
        let all =
            sum(|f| f.dropped + f.reordered + f.duplicated + f.corrupted + f.naks + f.stalled_acks);
        assert!(all > 10, "{fault}: {all} faults");
        let icrc = left.counters().dropped(DropReason::Icrc);
        assert_eq!(icrc > 0, fault.contains("corrupt"), "{fault}: {icrc}");
        for (one, other) in [(&left, &right), (&right, &left)] {
            let came = other.counters().received;
            let sent = one.counters().sent;
            assert!(
                came.packets > 0 && sent.packets >= came.packets,
                "{fault}: {sent:?}, {came:?}"
            );
        }
    }
}

/// Retransmissions, copies and answers of every kind carry a counter and a tag, too.
#[test]
fn authenticated_packets_survive_what_the_network_does() {
    let fault = "drop=0.01,reorder=0.05,dup=0.05,seed=6";
    let options = RoceOptions { authenticate: true, ..faulty(fault) };
    let (left, right) = run_over(fault, 100_000, options);
    for counters in [left.counters(), right.counters()] {
        assert!(counters.dropped(DropReason::Replayed) > 0, "{counters:?}");
        assert_eq!(counters.dropped(DropReason::Forged), 0, "{counters:?}");
    }
}

#[test]
fn a_side_that_authenticates_connects_to_no_other() {
    let sides = [true, false].map(|authenticate| {
        let options = RoceOptions { authenticate, ..any_port() };
        let device = RoceProvider::new(options).open_device("127.0.0.1").unwrap();
        Side::new(device, &Options::default())
    });
    let ends = sides.each_ref().map(|side| side.qp.endpoint());
    for (mut side, end) in sides.into_iter().zip([ends[1], ends[0]]) {
        side.init(&Options::default());
        let refused = side.qp.modify(QpTransition::ToRtr(RtrAttr::new(end))).unwrap_err();
        assert!(refused.to_string().contains("--authenticate"), "{refused}");
    }
}

/// A responder that never acknowledges is given up after the retries. An operation fails when its retries are used (S2.11).
#[test]
fn acknowledgements_that_never_come_end_in_retry_exceeded() {
    let [left, right] = [any_port(), faulty("stall-ack")]
        .map(|options| RoceProvider::new(options).open_device("127.0.0.1").unwrap());
    let options = Options {
        rts: RtsAttr { timeout: Duration::from_millis(5), retry_cnt: 3, ..RtsAttr::default() },
        ..Options::default()
    };
    let (mut a, b) = pair_of([&left, &right], &options);
    let status = a.run_failing(SendOp::Write(b.remote(0)), &[a.sge(0, 8)]);
    assert_eq!(status, WcStatus::TransportRetryExceeded);
    assert!(left.counters().protocol.timeouts >= 3);
}
