//! UC and UD: what arrives whole is delivered, losses are not recovered, nothing waits.
use crate::pair::{A, B, Setup, losing, remote, sge};
use catchment_roce::wire::{Bth, Deth, Headers, Opcode};
use catchment_roce::{
    Arrival, Destination, Input, Payload, PostFailure, Psn, SendOp, SendWr, Service, TransmitBatch,
    WcOpcode,
};
use catchment_verbs_types::RateLimit;

#[test]
fn uc_delivers_messages_that_arrive_whole_and_drops_the_others() {
    let mut pair = Setup::service(Service::Uc).pair();
    pair[A].fill(1);
    for index in 0..5 {
        pair[B].receive(index, &[sge(10_000 + 1000 * index, 1000)]);
        pair[A].post(index, SendOp::SendImm(index as u32), &[sge(1000 * index, 1000)]);
    }
    // Four packets a message: the second of message 1 is lost, and the last of message 3.
    pair.run_losing(losing(|packet| packet == 6 || packet == 16));
    assert_eq!(pair[A].succeeded(), [0, 1, 2, 3, 4]);
    assert_eq!(pair[B].succeeded(), [0, 1, 2]);
    let imms: Vec<_> = pair[B].completions().iter().map(|c| c.result.unwrap().imm).collect();
    assert_eq!(imms, [Some(0), Some(2), Some(4)]);
    assert_eq!(pair[B].bytes()[11_000..12_000], pair[A].bytes()[2000..3000]);
    assert_eq!(pair[B].qp().counters().messages_dropped, 2);
    assert_eq!(pair.opcodes(A), []);
}

#[test]
fn uc_writes_and_refuses_what_is_not_allowed_without_a_word() {
    let mut pair = Setup::service(Service::Uc).pair();
    pair[A].fill(1);
    pair[B].receive(7, &[]);
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 1000)]);
    pair[A].post(2, SendOp::Write(remote(1 << 20)), &[sge(0, 1000)]);
    pair[A].post(3, SendOp::WriteImm(remote(2000), 9), &[sge(0, 1000)]);
    let read = SendWr::new(4, SendOp::Read(remote(0)), Payload::Sges(&[]));
    assert!(matches!(pair[A].qp_mut().post_send(&read), Err(PostFailure::Service(_))));
    pair.run();
    assert_eq!(pair[A].succeeded(), [1, 2, 3]);
    assert_eq!(pair[B].bytes()[..1000], pair[A].bytes()[..1000]);
    assert_eq!(pair[B].bytes()[2000..3000], pair[A].bytes()[..1000]);
    let done = pair[B].completions()[0].result.unwrap();
    assert_eq!((done.opcode, done.bytes, done.imm), (WcOpcode::RecvWriteImm, 1000, Some(9)));
}

fn datagram(payload: &[u8], ah: u32, qkey: u32) -> SendWr<'_> {
    SendWr::new(1, SendOp::SendTo(Destination { ah, qpn: 0x22, qkey }), Payload::Inline(payload))
}

#[test]
fn ud_carries_messages_with_their_sender_and_a_place_for_the_header() {
    let mut pair = Setup::service(Service::Ud).pair();
    pair[B].receive(7, &[sge(0, 60)]);
    pair[B].receive(8, &[sge(100, 60)]);
    pair[A].qp_mut().post_send(&datagram(b"hello", 0, 77)).unwrap();
    pair[A].qp_mut().post_send(&datagram(b"wrong", 0, 78)).unwrap();
    let long = datagram(&[0; 257], 0, 77);
    assert!(matches!(pair[A].qp_mut().post_send(&long), Err(PostFailure::InlineTooLong { .. })));
    let nobody = SendWr::new(1, SendOp::Send, Payload::Sges(&[]));
    assert!(matches!(pair[A].qp_mut().post_send(&nobody), Err(PostFailure::Service(_))));
    pair.run();
    assert_eq!(pair[B].succeeded(), [7]);
    let done = pair[B].completions()[0].result.unwrap();
    assert_eq!(done.bytes, 45);
    assert_eq!(done.source_qpn(), Some(0x11));
    assert_eq!(&pair[B].bytes()[40..45], b"hello");
    assert_eq!(pair[B].qp().counters().dropped, 1);
}

#[test]
fn datagrams_for_two_destinations_go_in_two_batches() {
    let mut pair = Setup::service(Service::Ud).pair();
    for address in [5, 5, 6] {
        pair[A].qp_mut().post_send(&datagram(b"hello", address, 77)).unwrap();
    }
    let mut batch = TransmitBatch::new(16);
    for (destination, packets) in [(Some(5), 2), (Some(6), 1)] {
        assert_eq!(pair[A].transmit(1, &mut batch).len(), packets);
        assert_eq!(batch.destination(), destination);
    }
    assert!(pair[A].transmit(1, &mut batch).is_empty());
}

#[test]
fn a_datagram_too_long_for_its_receive_fails_that_receive_only() {
    let mut node = Setup::service(Service::Ud).end(B);
    node.receive(1, &[sge(0, 44)]);
    node.receive(2, &[sge(100, 45)]);
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, 0x22, Psn::new(9)));
    headers.deth = Some(Deth { qkey: 77, src_qpn: 3 });
    for _ in 0..2 {
        let grh = [0xab; 40];
        let arrival = Arrival { grh: Some(&grh), ..Arrival::new(&headers, b"hello") };
        node.handle(1, Input::Packet(arrival));
    }
    assert!(node.qp_mut().poll_completion().unwrap().result.is_err());
    let second = node.qp_mut().poll_completion().unwrap();
    assert_eq!((second.wr_id, second.result.unwrap().bytes), (2, 45));
    assert_eq!(node.bytes()[100..140], [0xab; 40]);
}

#[test]
fn marked_packets_slow_the_sender_down() {
    let mut pair = Setup::service(Service::Rc).pair();
    let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 0x22, Psn::new(0xff_fff0)));
    headers.reth = Some(Default::default());
    let arrival = Arrival { ecn_marked: true, ..Arrival::new(&headers, &[]) };
    // Only what is in flight can be marked.
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 4)]);
    pair.run();
    let now_ns = pair.now_ns();
    for _ in 0..10 {
        pair[B].handle(now_ns, Input::Packet(arrival));
    }
    pair.run();
    assert_eq!(pair.opcodes(A).iter().filter(|&&o| o == Opcode::Cnp).count(), 1);
    assert_eq!(pair[A].qp().counters().cnps_received, 1);
    let now_ns = pair.now_ns();
    assert_eq!(pair[A].qp_mut().rate_bps(now_ns), Some(5_000_000_000));
}

#[test]
fn a_paced_queue_pair_says_when_it_goes_on() {
    let mut pair = Setup::service(Service::Rc).pair();
    pair[A].qp_mut().set_rate(Some(RateLimit::new(80_000_000)));
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 1 << 20)]);
    pair.run();
    assert_eq!(pair[A].succeeded(), [1]);
    let bytes = (1u64 << 20) + 4096 * (28 + 4 + 46);
    let least_ns = (bytes - (65 << 10)) * 100;
    assert!((least_ns..least_ns + least_ns / 50).contains(&pair.now_ns()), "{}", pair.now_ns());
    assert_eq!(pair[A].qp().counters().retransmitted, 0);
}

/// A driver whose socket is full has no use for the same timeout again and again.
#[test]
fn who_waits_for_the_pacer_is_woken_once() {
    for service in [Service::Rc, Service::Uc] {
        let mut node = Setup::service(service).end(A);
        node.qp_mut().set_rate(Some(RateLimit::new(80_000_000)));
        node.post(1, SendOp::Write(remote(0)), &[sge(0, 1 << 20)]);
        let mut batch = TransmitBatch::new(1000);
        let burst = node.transmit(0, &mut batch).len();
        assert!((1..1000).contains(&burst), "{burst} packets at once");
        let opens_ns = node.qp().next_timeout().unwrap();
        // Too early it changes nothing.
        node.handle(opens_ns - 1, Input::Timeout);
        assert_eq!(node.qp().next_timeout(), Some(opens_ns));
        node.handle(opens_ns, Input::Timeout);
        assert!(node.qp().next_timeout().is_none_or(|next| next > opens_ns));
        assert_eq!(node.transmit(opens_ns, &mut batch).len(), 1);
        assert!(node.qp().next_timeout().is_some_and(|next| next > opens_ns));
    }
}

/// What a driver sends at once that gets no processor for 30 ms waits in the queue of a slower link, so a limit may
/// bound it: by default it is all that was missed.
#[test]
fn a_late_driver_sends_no_more_at_once_than_the_limit_says() {
    let limit = RateLimit::new(80_000_000);
    for (limit, most) in [(limit, 300_000), (limit.with_max_burst(16 << 10), 16 << 10)] {
        let mut node = Setup::service(Service::Uc).end(A);
        node.qp_mut().set_rate(Some(limit));
        node.post(1, SendOp::Write(remote(0)), &[sge(0, 1 << 20)]);
        let mut batch = TransmitBatch::new(1000);
        node.transmit(0, &mut batch);
        let bytes = |packets: usize| packets as u64 * (256 + 28 + 4 + 46);
        let now_ns = node.qp().next_timeout().unwrap() + 30_000_000;
        node.handle(now_ns, Input::Timeout);
        let sent = bytes(node.transmit(now_ns, &mut batch).len());
        assert!((most..most + 2 * bytes(1)).contains(&sent), "{limit:?}: {sent} bytes");
    }
}
