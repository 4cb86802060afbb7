//! What ends a connection, what only delays it, and how requests complete then.
use crate::pair::{A, B, BASE, BOTH, End, KEY, MS, Pair, Setup, US, losing_to, remote, sge};
use catchment_roce::wire::aeth::rnr_timer;
use catchment_roce::wire::{Aeth, Bth, Headers, NakCode, Opcode, Operation, Syndrome};
use catchment_roce::{
    Input, Payload, Psn, QpState, Recovery, RtsAttr, SendOp, SendWr, TransmitBatch, WcStatus,
};
use catchment_sim::roce::{Cable, Rights};
use std::time::Duration;

/// A connection with these attributes, in place of the defaults.
fn with_rts(recovery: Recovery, rts: RtsAttr) -> Setup {
    Setup { rts, ..Setup::recovering(recovery) }
}

fn rts() -> RtsAttr {
    RtsAttr::new(Psn::default())
}

fn timeout(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

fn no_answer(setup: Setup) -> Pair {
    let mut pair = setup.pair();
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 1000)]);
    let quiet = SendWr::new(2, SendOp::Write(remote(0)), Payload::Sges(&[])).unsignaled();
    pair[A].qp_mut().post_send(&quiet).unwrap();
    pair[A].receive(3, &[]);
    pair.run_losing(|_, _| true);
    pair
}

#[test]
fn a_silent_peer_is_given_up_after_the_tries_and_everything_is_flushed() {
    for recovery in BOTH {
        let setup = with_rts(recovery, RtsAttr { timeout: timeout(10), retry_cnt: 7, ..rts() });
        let pair = no_answer(setup);
        let want = [
            (1, Some(WcStatus::TransportRetryExceeded)),
            (2, Some(WcStatus::Flushed)),
            (3, Some(WcStatus::Flushed)),
        ];
        assert_eq!(pair[A].statuses(), want);
        assert_eq!(pair[A].qp().state(), QpState::Err);
        assert_eq!(pair[A].qp().error_cause(), Some(WcStatus::TransportRetryExceeded));
        // The first sending and seven tries, 10 ms each.
        assert_eq!(pair.now_ns() / MS, 80);
        assert_eq!(pair[A].qp().next_timeout(), None);
    }
}

#[test]
fn a_short_measured_timeout_does_not_shorten_the_life_of_a_connection() {
    for recovery in BOTH {
        let rts = RtsAttr { timeout: timeout(100), retry_cnt: 2, ..rts() };
        let mut pair = with_rts(recovery, rts).pair();
        for wr_id in 0..50 {
            pair[A].post(wr_id, SendOp::Write(remote(0)), &[sge(0, 10)]);
            pair.run();
        }
        let silent_from = pair.now_ns();
        pair[A].post(50, SendOp::Write(remote(0)), &[sge(0, 10)]);
        pair.run_losing(|_, _| true);
        assert_eq!(pair[A].statuses()[50], (50, Some(WcStatus::TransportRetryExceeded)));
        let silent_ms = (pair.now_ns() - silent_from) / MS;
        assert!((300..600).contains(&silent_ms), "{silent_ms}");
        // It asked often in the beginning: that is what the measurement is for.
        assert!(pair[A].qp().counters().retransmitted > 4);
    }
}

#[test]
fn without_a_timeout_a_request_waits_for_ever() {
    let pair = no_answer(with_rts(Recovery::GoBackN, RtsAttr { timeout: None, ..rts() }));
    assert_eq!(pair[A].statuses(), []);
    assert_eq!(pair[A].qp().next_timeout(), None);
}

/// Runs one bad request between two good ones, and returns the status of each.
fn with_bad(recovery: Recovery, bad: impl FnOnce(&mut Pair)) -> Pair {
    let mut pair = Setup::recovering(recovery).pair();
    pair[A].post(1, SendOp::Write(remote(0)), &[sge(0, 300)]);
    bad(&mut pair);
    pair[A].post(3, SendOp::Write(remote(0)), &[sge(0, 300)]);
    pair[B].receive(9, &[sge(0, 10)]);
    pair.run();
    assert_eq!(pair[A].qp().state(), QpState::Err);
    assert_eq!(pair[B].qp().state(), QpState::Err);
    pair
}

#[test]
fn wrong_keys_ranges_and_rights_are_remote_access_errors() {
    let wrong_key = catchment_roce::RemoteAddr { rkey: 1, ..remote(0) };
    let all_but_atomic = Rights { atomic: false, ..Rights::ALL };
    for (rights, op, bytes) in [
        (Rights::ALL, SendOp::Write(wrong_key), 10),
        (Rights::ALL, SendOp::Read(wrong_key), 10),
        (Rights::ALL, SendOp::Write(remote((1 << 20) - 100)), 300),
        (all_but_atomic, SendOp::FetchAdd { remote: remote(0), add: 1 }, 8),
    ] {
        for recovery in BOTH {
            let pair = with_bad(recovery, |pair| {
                pair[B].space().region_mut(KEY).unwrap().rights = rights;
                pair[A].post(2, op, &[sge(0, bytes)]);
            });
            let refused = Some(WcStatus::RemoteAccess);
            let want = [(1, None), (2, refused), (3, Some(WcStatus::Flushed))];
            assert_eq!(pair[A].statuses(), want, "{recovery:?} {op:?}");
        }
    }
}

#[test]
fn a_message_too_long_for_its_receive_fails_at_both_ends() {
    for recovery in BOTH {
        let pair = with_bad(recovery, |pair| {
            pair[B].receive(8, &[sge(0, 500)]);
            pair[A].post(2, SendOp::Send, &[sge(0, 501)]);
        });
        assert_eq!(pair[A].statuses()[1], (2, Some(WcStatus::RemoteInvalidRequest)));
        let want = [(8, Some(WcStatus::LocalLength)), (9, Some(WcStatus::Flushed))];
        assert_eq!(pair[B].statuses(), want);
    }
}

#[test]
fn memory_that_goes_while_it_is_read_is_an_access_error() {
    for recovery in BOTH {
        let mut pair = Setup::recovering(recovery).pair();
        pair[A].post(1, SendOp::Read(remote(0)), &[sge(0, 100_000)]);
        let request = pair[A].transmit(1, &mut TransmitBatch::new(64)).remove(0);
        let packet = catchment_roce::wire::Packet::decode(&request).unwrap();
        pair[B].deliver(2, &packet.headers, packet.payload);
        pair[B].space().region_mut(KEY).unwrap().rights = Rights { read: false, ..Rights::ALL };
        pair.run();
        assert_eq!(pair[A].statuses(), [(1, Some(WcStatus::RemoteAccess))]);
        assert_eq!(pair[B].qp().state(), QpState::Err);
    }
}

#[test]
fn a_send_waits_until_a_receive_is_posted() {
    for recovery in BOTH {
        let mut pair = with_rts(recovery, RtsAttr { rnr_retry: 7, ..rts() }).pair();
        pair[A].fill(5);
        for wr_id in 1..=5 {
            pair[A].post(wr_id, SendOp::Send, &[sge(0, 600)]);
            pair[A].post(wr_id + 10, SendOp::Write(remote(0)), &[sge(0, 600)]);
        }
        let mut naks = 0;
        // The peer's program comes back after some RNR NAKs: as if it were slow.
        pair[B].receive(1, &[sge(5000, 600)]);
        for round in 0..5u64 {
            pair.run_for(Duration::from_millis(20), |to, headers| {
                let is_rnr =
                    headers.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Rnr { .. }));
                naks += u64::from(to == A && is_rnr);
                false
            });
            pair[B].receive(2 + round, &[sge(5000, 600)]);
        }
        pair.run();
        assert_eq!(pair[A].succeeded(), [1, 11, 2, 12, 3, 13, 4, 14, 5, 15]);
        assert_eq!(pair[B].succeeded(), [1, 2, 3, 4, 5]);
        assert!(naks >= 4, "{naks}");
        assert_eq!(pair[A].qp().counters().timeouts, 0, "{recovery:?}");
        assert_eq!(pair[B].bytes()[5000..5600], pair[A].bytes()[..600]);
    }
}

#[test]
fn rnr_tries_are_counted_and_timed() {
    for recovery in BOTH {
        let mut pair = with_rts(recovery, RtsAttr { rnr_retry: 3, ..rts() }).pair();
        pair[A].post(1, SendOp::Send, &[sge(0, 600)]);
        pair.run();
        assert_eq!(pair[A].statuses(), [(1, Some(WcStatus::RnrRetryExceeded))]);
        assert_eq!(pair[A].qp().counters().rnr_naks_received, 4);
        let firsts = pair.sent(B).filter(|sent| sent.headers.bth.opcode == Opcode::RcSendFirst);
        let times: Vec<u64> = firsts.map(|sent| sent.at_ns).collect();
        let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let rnr_ns = rnr_timer(12).as_nanos() as u64;
        assert_eq!(waits, [rnr_ns + 100 * US; 3]);
    }
}

/// Gives `node` an acknowledgement as if its peer had sent it.
fn acknowledge(node: &mut End, now_ns: u64, psn: u32, syndrome: Syndrome) {
    let mut headers = Headers::new(Bth::new(Opcode::RcAcknowledge, 0x11, Psn::new(psn)));
    headers.aeth = Some(Aeth { syndrome, msn: 0 });
    node.deliver(now_ns, &headers, &[]);
}

pub(crate) fn sends(node: &mut End, now_ns: u64) -> Vec<u32> {
    let packets = node.transmit(now_ns, &mut TransmitBatch::new(256));
    let psn = |bytes: &Vec<u8>| Headers::decode(bytes).unwrap().0.bth.psn.value();
    packets.iter().map(psn).collect()
}

fn sender_of_ten(recovery: Recovery) -> End {
    let mut node = Setup { psn: 100, ..Setup::recovering(recovery) }.end(A);
    for wr_id in 0..10 {
        node.post(wr_id, SendOp::Write(remote(0)), &[sge(0, 10)]);
    }
    assert_eq!(sends(&mut node, 1), (100..110).collect::<Vec<_>>());
    node
}

/// The requests that completed since the last call.
fn done(node: &mut End) -> Vec<u64> {
    std::iter::from_fn(|| Some(node.qp_mut().poll_completion()?.wr_id)).collect()
}

#[test]
fn a_requester_walks_stale_expected_duplicate_and_future_acknowledgements() {
    for recovery in BOTH {
        let mut node = sender_of_ten(recovery);
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
        assert_eq!(node.qp().counters().dropped, 7);
        assert_eq!(node.qp().next_timeout(), None);
        assert_eq!(node.qp().state(), QpState::Rts);
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
    assert_eq!(node.qp().counters().lost, 0, "they are no losses");
    let until_ns = node.qp().next_timeout().unwrap();
    assert_eq!(until_ns, MS + 640 * US);
    node.handle(until_ns, Input::Timeout);
    assert_eq!(sends(&mut node, until_ns), (105..110).collect::<Vec<_>>());
    assert_eq!(node.qp().counters().retransmitted, 5);
}

#[test]
fn a_sequence_nak_goes_back_and_completes_what_lies_before() {
    let mut node = sender_of_ten(Recovery::GoBackN);
    acknowledge(&mut node, MS, 104, Syndrome::Nak(NakCode::PsnSequence));
    assert_eq!(sends(&mut node, MS), (104..110).collect::<Vec<_>>());
    assert_eq!(done(&mut node), [0, 1, 2, 3]);
}

#[test]
fn a_read_asks_once_for_a_gap_in_its_answers() {
    // Answers come one by one: each after the gap could ask again.
    let setup = Setup::default();
    let cable = Cable { rate_bps: Some(100_000_000), ..setup.cable };
    let mut pair = Setup { cable, ..setup }.pair();
    pair[B].fill(1);
    pair[A].post(1, SendOp::Read(remote(0)), &[sge(0, 256 * 40)]);
    pair.run_losing(losing_to(A, |packet| packet == 10));
    assert_eq!(pair[A].succeeded(), [1]);
    assert_eq!(pair[A].bytes()[..10240], pair[B].bytes()[..10240]);
    assert_eq!(pair.opcodes(B), [Opcode::RcReadRequest; 2]);
    let again = pair.sent(B).next_back().unwrap().headers;
    assert_eq!(again.bth.psn, Psn::new(0xff_fff0).add(9));
    let reth = again.reth.unwrap();
    assert_eq!((reth.va, reth.dma_bytes), (BASE + 9 * 256, 31 * 256));
}

#[test]
fn selective_repeat_asks_only_for_the_answers_that_are_missing() {
    let mut pair = Setup::recovering(Recovery::SelectiveRepeat).pair();
    pair[B].fill(1);
    pair[A].post(1, SendOp::Read(remote(0)), &[sge(0, 256 * 1000)]);
    let (mut count, mut lost) = (0u64, 0u64);
    pair.run_losing(|to, headers| {
        let is_data = headers.bth.opcode.operation() == Operation::ReadResponse;
        count += u64::from(to == A && is_data);
        let loses = to == A && is_data && count % 40 == 11;
        lost += u64::from(loses);
        loses
    });
    assert_eq!(pair[A].succeeded(), [1]);
    assert_eq!(pair[A].bytes()[..256_000], pair[B].bytes()[..256_000]);
    assert_eq!(pair[B].qp().counters().packets_sent, 1000 + lost);
}
