//! What ends a connection, what only delays it, and how requests complete then.

use crate::pair::{BOTH, MS, Node, Pair, Setup, To, US, remote, sge, timeout};
use catchment_roce::wire::aeth::rnr_timer;
use catchment_roce::wire::{Aeth, Bth, Headers, NakCode, Opcode, Operation, Syndrome};
use catchment_roce::{
    Arrival, Input, Payload, Psn, QpState, Recovery, RemoteAccess, RtsAttr, SendOp, SendWr,
    TransmitBatch, WcStatus,
};

fn no_answer(setup: Setup) -> (Pair, u64) {
    let mut pair = Pair::new(&setup);
    pair.a.post(1, SendOp::Write(remote(0)), &[sge(0, 1000)]);
    let quiet = SendWr::new(2, SendOp::Write(remote(0)), Payload::Sges(&[])).unsignaled();
    pair.a.qp.post_send(&quiet).unwrap();
    pair.a.receive(3, &[]);
    pair.run_with(|_, _| vec![]);
    let now_ns = pair.now_ns;
    (pair, now_ns)
}

#[test]
fn a_silent_peer_is_given_up_after_the_tries_and_everything_is_flushed() {
    for recovery in BOTH {
        let setup = Setup {
            rts: RtsAttr { timeout: timeout(10), retry_cnt: 7, ..RtsAttr::new(Psn::default()) },
            ..Setup::recovering(recovery)
        };
        let (pair, took_ns) = no_answer(setup);
        let want = [
            (1, Some(WcStatus::TransportRetryExceeded)),
            (2, Some(WcStatus::Flushed)),
            (3, Some(WcStatus::Flushed)),
        ];
        assert_eq!(pair.a.statuses(), want);
        assert_eq!(pair.a.qp.state(), QpState::Err);
        assert_eq!(pair.a.qp.error_cause(), Some(WcStatus::TransportRetryExceeded));
        // The first sending and seven tries, 10 ms each.
        assert_eq!(took_ns / MS, 80);
        assert_eq!(pair.a.qp.next_timeout(), None);
    }
}

#[test]
fn a_short_measured_timeout_does_not_shorten_the_life_of_a_connection() {
    for recovery in BOTH {
        let setup = Setup {
            rts: RtsAttr { timeout: timeout(100), retry_cnt: 2, ..RtsAttr::new(Psn::default()) },
            ..Setup::recovering(recovery)
        };
        let mut pair = Pair::new(&setup);
        for wr_id in 0..50 {
            pair.a.post(wr_id, SendOp::Write(remote(0)), &[sge(0, 10)]);
            pair.run();
        }
        let silent_from = pair.now_ns;
        pair.a.post(50, SendOp::Write(remote(0)), &[sge(0, 10)]);
        pair.run_with(|_, _| vec![]);
        let status = pair.a.statuses()[50];
        assert_eq!(status, (50, Some(WcStatus::TransportRetryExceeded)));
        let silent_ms = (pair.now_ns - silent_from) / MS;
        assert!((300..600).contains(&silent_ms), "{silent_ms}");
        // It asked often in the beginning: that is what the measurement is for.
        assert!(pair.a.qp.counters().retransmitted > 4);
    }
}

#[test]
fn without_a_timeout_a_request_waits_for_ever() {
    let setup = Setup {
        rts: RtsAttr { timeout: None, ..RtsAttr::new(Psn::default()) },
        ..Setup::default()
    };
    let (pair, _) = no_answer(setup);
    assert_eq!(pair.a.statuses(), []);
    assert_eq!(pair.a.qp.next_timeout(), None);
}

/// Runs one bad request between two good ones, and gives what all completed with.
fn with_bad(recovery: Recovery, bad: impl FnOnce(&mut Pair)) -> Pair {
    let mut pair = Pair::new(&Setup::recovering(recovery));
    pair.a.post(1, SendOp::Write(remote(0)), &[sge(0, 300)]);
    bad(&mut pair);
    pair.a.post(3, SendOp::Write(remote(0)), &[sge(0, 300)]);
    pair.b.receive(9, &[sge(0, 10)]);
    pair.run();
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.b.qp.state(), QpState::Err);
    pair
}

fn fails_with(status: WcStatus, bad: impl Fn(&mut Pair)) {
    for recovery in BOTH {
        let pair = with_bad(recovery, &bad);
        let want = [(1, None), (2, Some(status)), (3, Some(WcStatus::Flushed))];
        assert_eq!(pair.a.statuses(), want, "{recovery:?}");
    }
}

#[test]
fn wrong_keys_ranges_and_rights_are_remote_access_errors() {
    let wrong_key = catchment_roce::RemoteAddr { rkey: 1, ..remote(0) };
    fails_with(WcStatus::RemoteAccess, |pair| {
        pair.a.post(2, SendOp::Write(wrong_key), &[sge(0, 10)]);
    });
    fails_with(WcStatus::RemoteAccess, |pair| {
        pair.a.post(2, SendOp::Read(wrong_key), &[sge(0, 10)]);
    });
    fails_with(WcStatus::RemoteAccess, |pair| {
        pair.a.post(2, SendOp::Write(remote((1 << 20) - 100)), &[sge(0, 300)]);
    });
    fails_with(WcStatus::RemoteAccess, |pair| {
        pair.b.memory.deny = Some(RemoteAccess::Atomic);
        let add = SendOp::FetchAdd { remote: remote(0), add: 1 };
        pair.a.post(2, add, &[sge(0, 8)]);
    });
}

#[test]
fn a_message_too_long_for_its_receive_fails_at_both_ends() {
    for recovery in BOTH {
        let pair = with_bad(recovery, |pair| {
            pair.b.receive(8, &[sge(0, 500)]);
            pair.a.post(2, SendOp::Send, &[sge(0, 501)]);
        });
        assert_eq!(pair.a.statuses()[1], (2, Some(WcStatus::RemoteInvalidRequest)));
        let want = [(8, Some(WcStatus::LocalLength)), (9, Some(WcStatus::Flushed))];
        assert_eq!(pair.b.statuses(), want);
    }
}

#[test]
fn memory_that_goes_while_it_is_read_is_an_access_error() {
    for recovery in BOTH {
        let mut pair = Pair::new(&Setup::recovering(recovery));
        pair.a.post(1, SendOp::Read(remote(0)), &[sge(0, 100_000)]);
        let mut batch = TransmitBatch::new(64);
        pair.a.qp.poll_transmit(1, &pair.a.memory, &mut batch);
        let request = crate::pair::gather(&batch, &pair.a.memory).remove(0);
        let packet = catchment_roce::wire::Packet::decode(&request).unwrap();
        let input = Input::Packet(Arrival::new(&packet.headers, packet.payload));
        pair.b.qp.handle(2, input, &mut pair.b.memory);
        pair.b.memory.deny = Some(RemoteAccess::Read);
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Some(WcStatus::RemoteAccess))]);
        assert_eq!(pair.b.qp.state(), QpState::Err);
    }
}

#[test]
fn a_send_waits_until_a_receive_is_posted() {
    for recovery in BOTH {
        let setup = Setup {
            rts: RtsAttr { rnr_retry: 7, ..RtsAttr::new(Psn::default()) },
            ..Setup::recovering(recovery)
        };
        let mut pair = Pair::new(&setup);
        pair.a.fill(5);
        for wr_id in 1..=5 {
            pair.a.post(wr_id, SendOp::Send, &[sge(0, 600)]);
            pair.a.post(wr_id + 10, SendOp::Write(remote(0)), &[sge(0, 600)]);
        }
        let latency = pair.latency_ns;
        let mut naks = 0;
        // The peer's program comes back after some RNR NAKs: as if it were slow.
        let (a, b) = (&mut pair.a, &mut pair.b);
        b.receive(1, &[sge(5000, 600)]);
        let _ = a;
        for round in 0..5u64 {
            pair.run_with_limit(20 * MS, |to, headers| {
                let is_rnr =
                    headers.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Rnr { .. }));
                naks += u64::from(to == To::A && is_rnr);
                vec![latency]
            });
            pair.b.receive(2 + round, &[sge(5000, 600)]);
        }
        pair.run();
        assert_eq!(pair.a.succeeded(), [1, 11, 2, 12, 3, 13, 4, 14, 5, 15]);
        assert_eq!(pair.b.succeeded(), [1, 2, 3, 4, 5]);
        assert!(naks >= 4, "{naks}");
        assert_eq!(pair.a.qp.counters().timeouts, 0, "{recovery:?}");
        assert_eq!(pair.b.memory.bytes[5000..5600], pair.a.memory.bytes[..600]);
    }
}

#[test]
fn rnr_tries_are_counted_and_timed() {
    for recovery in BOTH {
        let setup = Setup {
            rts: RtsAttr { rnr_retry: 3, ..RtsAttr::new(Psn::default()) },
            ..Setup::recovering(recovery)
        };
        let mut pair = Pair::new(&setup);
        pair.a.post(1, SendOp::Send, &[sge(0, 600)]);
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Some(WcStatus::RnrRetryExceeded))]);
        assert_eq!(pair.a.qp.counters().rnr_naks_received, 4);
        let firsts = pair.log.iter().filter(|(to, _, headers, _)| {
            *to == To::B && headers.bth.opcode == Opcode::RcSendFirst
        });
        let times: Vec<u64> = firsts.map(|&(_, at, ..)| at).collect();
        let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let rnr_ns = rnr_timer(12).as_nanos() as u64;
        assert_eq!(waits, [rnr_ns + 100 * US; 3]);
    }
}

/// Gives `node` an acknowledgement as if its peer had sent it.
fn acknowledge(node: &mut Node, now_ns: u64, psn: u32, syndrome: Syndrome) {
    let bth = Bth::new(Opcode::RcAcknowledge, 0x11, Psn::new(psn));
    let mut headers = Headers::new(bth);
    headers.aeth = Some(Aeth { syndrome, msn: 0 });
    let input = Input::Packet(Arrival::new(&headers, &[]));
    node.qp.handle(now_ns, input, &mut node.memory);
}

/// PSNs that `node` sends now.
pub(crate) fn sends(node: &mut Node, now_ns: u64) -> Vec<u32> {
    let mut batch = TransmitBatch::new(256);
    node.qp.poll_transmit(now_ns, &node.memory, &mut batch);
    let packets = crate::pair::gather(&batch, &node.memory);
    let psn = |bytes: &Vec<u8>| Headers::decode(bytes).unwrap().0.bth.psn.value();
    packets.iter().map(psn).collect()
}

fn sender_of_ten(recovery: Recovery) -> Node {
    let setup = Setup { psn: 100, ..Setup::recovering(recovery) };
    let mut node = setup.node(0x11, 100, 0x22, 500);
    for wr_id in 0..10 {
        node.post(wr_id, SendOp::Write(remote(0)), &[sge(0, 10)]);
    }
    assert_eq!(sends(&mut node, 1), (100..110).collect::<Vec<_>>());
    node
}

#[test]
fn a_requester_walks_stale_expected_duplicate_and_future_acknowledgements() {
    for recovery in BOTH {
        let mut node = sender_of_ten(recovery);
        let done = |node: &mut Node| {
            std::iter::from_fn(|| node.qp.poll_completion())
                .map(|completion| completion.wr_id)
                .collect::<Vec<_>>()
        };
        acknowledge(&mut node, 2, 99, Syndrome::ACK);
        acknowledge(&mut node, 2, 50, Syndrome::ACK);
        acknowledge(&mut node, 2, 110, Syndrome::ACK);
        acknowledge(&mut node, 2, 110 + (1 << 22), Syndrome::Nak(NakCode::RemoteAccess));
        assert!(done(&mut node).is_empty(), "stale and future ones say nothing");
        acknowledge(&mut node, 3, 100, Syndrome::ACK);
        assert_eq!(done(&mut node), [0]);
        acknowledge(&mut node, 4, 104, Syndrome::Ack { credits: 3 });
        acknowledge(&mut node, 4, 104, Syndrome::ACK);
        acknowledge(&mut node, 4, 102, Syndrome::ACK);
        assert_eq!(done(&mut node), [1, 2, 3, 4]);
        acknowledge(&mut node, 5, 109, Syndrome::Other(0x80));
        assert!(done(&mut node).is_empty());
        acknowledge(&mut node, 5, 109, Syndrome::ACK);
        assert_eq!(done(&mut node), [5, 6, 7, 8, 9]);
        assert_eq!(node.qp.counters().dropped, 7);
        assert_eq!(node.qp.next_timeout(), None);
        assert_eq!(node.qp.state(), QpState::Rts);
    }
}

#[test]
fn naks_for_what_waits_for_a_receive_start_no_storm() {
    let mut node = sender_of_ten(Recovery::GoBackN);
    acknowledge(&mut node, MS, 105, Syndrome::Rnr { timer: 12 });
    for _ in 106..110 {
        acknowledge(&mut node, MS, 105, Syndrome::Nak(NakCode::PsnSequence));
    }
    assert!(sends(&mut node, MS).is_empty(), "the timer runs");
    assert_eq!(node.qp.counters().lost, 0, "they are no losses");
    let until_ns = node.qp.next_timeout().unwrap();
    assert_eq!(until_ns, MS + 640 * US);
    node.qp.handle(until_ns, Input::Timeout, &mut node.memory);
    assert_eq!(sends(&mut node, until_ns), (105..110).collect::<Vec<_>>());
    assert_eq!(node.qp.counters().retransmitted, 5);
}

#[test]
fn a_sequence_nak_goes_back_and_completes_what_lies_before() {
    let mut node = sender_of_ten(Recovery::GoBackN);
    acknowledge(&mut node, MS, 104, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(sends(&mut node, MS), (104..110).collect::<Vec<_>>());
    let done = std::iter::from_fn(|| node.qp.poll_completion()).count();
    assert_eq!(done, 4);
}

#[test]
fn a_read_asks_once_for_a_gap_in_its_answers() {
    let mut pair = Pair::new(&Setup::default());
    // Answers come one by one: each after the gap could ask again.
    pair.link_bps = Some(100_000_000);
    pair.b.fill(1);
    pair.a.post(1, SendOp::Read(remote(0)), &[sge(0, 256 * 40)]);
    let latency = pair.latency_ns;
    let mut count = 0;
    pair.run_with(|to, _| {
        count += u64::from(to == To::A);
        if to == To::A && count == 10 { vec![] } else { vec![latency] }
    });
    assert_eq!(pair.a.succeeded(), [1]);
    assert_eq!(pair.a.memory.bytes[..10240], pair.b.memory.bytes[..10240]);
    let requests = pair.opcodes(To::B);
    assert_eq!(requests, [Opcode::RcReadRequest; 2]);
    let again = pair.log.iter().rfind(|(to, ..)| *to == To::B).unwrap().2;
    assert_eq!(again.bth.psn, Psn::new(0xff_fff0).add(9));
    let reth = again.reth.unwrap();
    assert_eq!((reth.va, reth.dma_bytes), (crate::pair::BASE + 9 * 256, 31 * 256));
}

#[test]
fn selective_repeat_asks_only_for_the_answers_that_are_missing() {
    let mut pair = Pair::new(&Setup::recovering(Recovery::SelectiveRepeat));
    pair.b.fill(1);
    pair.a.post(1, SendOp::Read(remote(0)), &[sge(0, 256 * 1000)]);
    let latency = pair.latency_ns;
    let (mut count, mut lost) = (0u64, 0u64);
    pair.run_with(|to, headers| {
        let is_data = headers.bth.opcode.operation() == Operation::ReadResponse;
        count += u64::from(to == To::A && is_data);
        if to == To::A && is_data && count % 40 == 11 {
            lost += 1;
            return vec![];
        }
        vec![latency]
    });
    assert_eq!(pair.a.succeeded(), [1]);
    assert_eq!(pair.a.memory.bytes[..256_000], pair.b.memory.bytes[..256_000]);
    assert_eq!(pair.b.qp.counters().packets_sent, 1000 + lost);
}
