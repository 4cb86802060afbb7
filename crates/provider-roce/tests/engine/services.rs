//! What UC and UD do beyond the conformance suite: losses, and what is counted.
use crate::common;

use catchment_conformance::{
    Options, Side, assert_empty, connected, eventually, pattern, wait_one,
};
use catchment_provider_roce::{RoceContext, RoceOptions, RoceProvider};
use catchment_roce::wire::{DropReason, PathMtu};
use catchment_verbs::{
    Completion, Destination, Payload, PortAddr, QpState, SendOp, SendWr, Service,
};
use std::sync::Arc;

const MESSAGES: u64 = 200;
const BYTES: usize = 5_000;
const MARK_AT: usize = 900_000;

fn options(service: Service) -> Options {
    Options { service, ..Options::default() }
}

fn sides(faults: &str, service: Service) -> (Side, Side, Arc<RoceContext>) {
    let ours = RoceOptions {
        fault: (!faults.is_empty()).then(|| faults.parse().unwrap()),
        path_mtu: Some(PathMtu::Mtu1024),
        ..common::any_port()
    };
    let theirs = RoceOptions { fault: None, ..ours.clone() };
    let open = |options| RoceProvider::new(options).open_device("127.0.0.1").unwrap();
    let (left, right) = (open(ours), open(theirs));
    let options = options(service);
    let (a, b) = connected((left, &options), (right.clone(), &options));
    (a, b, right)
}

/// Takes the messages that have arrived, checks them, and reposts their receives.
fn take(b: &mut Side, arrived: &mut Vec<u64>) {
    let mut out = [Completion::EMPTY];
    while b.recv_cq.poll(&mut out).unwrap() == 1 {
        assert_eq!(out[0].result.unwrap().bytes, BYTES as u64);
        let slot = out[0].wr_id as usize;
        let data = b.get(slot * BYTES, BYTES);
        let number = u64::from_ne_bytes(data[..8].try_into().unwrap());
        assert!(data[8..] == pattern(number, BYTES - 8), "message {number}");
        arrived.push(number);
        b.post_recv(out[0].wr_id, &[b.sge(slot * BYTES, BYTES)]);
    }
}

/// A message that lacks a packet is dropped, with all its other packets, and nothing fails; those
/// that are whole arrive, in order.
#[test]
fn a_lost_packet_drops_its_message_and_nothing_else() {
    let (mut a, mut b, device) = sides("drop=0.1,seed=5", Service::Uc);
    for slot in 0..16 {
        b.post_recv(slot as u64, &[b.sge(slot * BYTES, BYTES)]);
    }
    let mut arrived = Vec::new();
    for number in 0..MESSAGES {
        a.put(0, &number.to_ne_bytes());
        a.put(8, &pattern(number, BYTES - 8));
        a.run_ok(SendOp::Send, &[a.sge(0, BYTES)]);
        take(&mut b, &mut arrived);
    }
    // The mark may get lost too.
    eventually("a WRITE behind the messages", || {
        a.run(SendWr::new(1, SendOp::Write(b.remote(MARK_AT)), Payload::Inline(&[1; 8]))).unwrap();
        b.get(MARK_AT, 8) == [1; 8]
    });
    take(&mut b, &mut arrived);
    assert!(arrived.is_sorted(), "{arrived:?}");
    let whole = arrived.len() as u64;
    // Of five packets each, all get through in three messages of five.
    assert!((60..180).contains(&whole), "{whole} of {MESSAGES}");
    let counters = device.counters().protocol;
    assert!(counters.messages_dropped > 0, "{counters:?}");
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
}

/// A Q_Key that is not the receiver's has a counter; so has a datagram without a receive.
#[test]
fn datagrams_that_are_not_taken_are_counted() {
    let (mut a, mut b, device) = sides("", Service::Ud);
    let ah = a.pd.create_ah(&PortAddr::from(&b.qp.endpoint())).unwrap();
    let right = Destination { ah: ah.handle(), qpn: b.qp.qpn(), qkey: Options::default().qkey };
    let mut send = |to| {
        a.run(SendWr::new(1, SendOp::SendTo(to), Payload::Inline(b"datagram"))).unwrap();
    };
    for qkey in 1..=3 {
        send(Destination { qkey, ..right });
    }
    send(right);
    eventually("four datagrams that are not taken", || {
        let counters = device.counters();
        (counters.dropped(DropReason::QueueKey), counters.protocol.messages_dropped) == (3, 1)
    });
    assert_empty(&*b.recv_cq);
    b.post_recv(1, &[b.sge(0, 100)]);
    send(right);
    assert!(wait_one(&*b.recv_cq).result.is_ok());
}

/// Packets to a queue pair of another service, or to one that is not ready, are counted.
#[test]
fn packets_of_another_service_are_dropped() {
    let (mut a, b, device) = sides("", Service::Ud);
    let fresh = Side::new(device.clone(), &options(Service::Ud));
    let ah = a.pd.create_ah(&PortAddr::from(&b.qp.endpoint())).unwrap();
    let to = |qpn| Destination { ah: ah.handle(), qpn, qkey: Options::default().qkey };
    let connection = options(Service::Uc);
    let mut c = Side::new(device.clone(), &connection);
    c.init(&connection);
    for qpn in [fresh.qp.qpn(), c.qp.qpn()] {
        a.run(SendWr::new(1, SendOp::SendTo(to(qpn)), Payload::Inline(b"x"))).unwrap();
    }
    eventually("two datagrams that find nobody", || {
        device.counters().dropped(DropReason::UnknownQp) == 2
    });
}
