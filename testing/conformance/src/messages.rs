//! SEND, immediates, and the receives that they need.
use crate::{Bench, Deviation, Options, Side, assert_empty, eventually, pattern, wait_one};
use catchment_verbs::{
    Completion, Payload, QpState, RemoteAddr, RtsAttr, SendOp, SendWr, Success, WcOpcode, WcStatus,
};
use std::time::{Duration, Instant};

/// Sends `bytes` from `a` to `b` while both are polled, and returns both completions.
pub fn transfer(a: &mut Side, b: &mut Side, wr: SendWr<'_>) -> (Completion, Completion) {
    a.post(wr);
    let (mut sent, mut received) = ([Completion::EMPTY], [Completion::EMPTY]);
    let (mut s, mut r) = (0, 0);
    eventually("a message at both sides", || {
        if s == 0 {
            s = a.send_cq.poll(&mut sent).unwrap();
        }
        if r == 0 {
            r = b.recv_cq.poll(&mut received).unwrap();
        }
        s == 1 && r == 1
    });
    (sent[0], received[0])
}

/// From empty ones to those longer than any internal buffer, into several elements.
pub fn messages_of_all_lengths_arrive(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    for bytes in [0, 1, 31, 32, 33, 1000, 16_384, 16_385, 65_536, 200_001, 700_000] {
        let data = pattern(bytes as u64, bytes);
        a.put(1, &data);
        b.post_recv(bytes as u64, &[b.sge(3, 10), b.sge(100, 20_000), b.sge(30_000, 700_000)]);
        let sges = [a.sge(1, bytes / 3), a.sge(1 + bytes / 3, bytes - bytes / 3)];
        let wr = SendWr::new(9, SendOp::Send, Payload::Sges(&sges));
        let (sent, received) = transfer(&mut a, &mut b, wr);
        let expected = Success::plain(WcOpcode::Send, bytes as u64);
        assert_eq!((sent.wr_id, sent.result), (9, Ok(expected)));
        let expected = Success::plain(WcOpcode::Recv, bytes as u64);
        assert_eq!((received.wr_id, received.result), (bytes as u64, Ok(expected)));
        let mut seen = b.get(3, 10);
        seen.extend(b.get(100, 20_000));
        seen.extend(b.get(30_000, 700_000));
        assert!(seen[..bytes] == data, "{bytes} bytes");
    }
}

/// Immediate data with SEND and with WRITE; a receive without elements suffices for WRITE.
pub fn immediates_arrive(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    a.put(0, b"immediate");
    let (sge, place) = (a.sge(0, 9), b.sge(0, 64));
    b.post_recv(1, &[place]);
    b.post_recv(2, &[]);
    let wr =
        SendWr::new(3, SendOp::SendImm(0xdead_beef), Payload::Sges(std::slice::from_ref(&sge)));
    let (_, received) = transfer(&mut a, &mut b, wr);
    let expected = Success::plain(WcOpcode::Recv, 9).with_imm(Some(0xdead_beef));
    assert_eq!((received.wr_id, received.result), (1, Ok(expected)));
    assert_eq!(b.get(0, 9), b"immediate");
    let op = SendOp::WriteImm(b.remote(500), 0);
    let wr = SendWr::new(4, op, Payload::Sges(std::slice::from_ref(&sge)));
    let (sent, received) = transfer(&mut a, &mut b, wr);
    assert_eq!(sent.result.unwrap().opcode, WcOpcode::Write);
    let expected = Success::plain(WcOpcode::RecvWriteImm, 9).with_imm(Some(0));
    assert_eq!((received.wr_id, received.result), (2, Ok(expected)));
    assert_eq!(b.get(500, 9), b"immediate");
}

/// Full duplex with messages longer than internal buffers: neither side blocks the other.
pub fn both_directions_at_once(bench: &Bench) {
    const BYTES: usize = 150_000;
    let (mut a, mut b) = bench.pair();
    for round in 0..20 {
        for (side, seed) in [(&mut a, round), (&mut b, round + 100)] {
            side.put(0, &pattern(seed, BYTES));
            let (sge, place) = (side.sge(0, BYTES), side.sge(BYTES, BYTES));
            side.post_recv(round, &[place]);
            side.post(SendWr::new(round, SendOp::Send, Payload::Sges(&[sge])));
        }
        let mut seen = 0;
        eventually("four completions", || {
            let mut out = [Completion::EMPTY; 4];
            for cq in [&a.send_cq, &a.recv_cq, &b.send_cq, &b.recv_cq] {
                let n = cq.poll(&mut out).unwrap();
                assert!(out[..n].iter().all(|c| c.result.is_ok()), "{out:?}");
                seen += n;
            }
            seen == 4
        });
        assert!(a.get(BYTES, BYTES) == pattern(round + 100, BYTES));
        assert!(b.get(BYTES, BYTES) == pattern(round, BYTES));
    }
}

/// RNR with patience: the message is delivered when a receive is posted (S3.10).
pub fn a_message_waits_for_its_receive(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    a.put(0, b"patience");
    let (sge, place) = (a.sge(0, 8), b.sge(0, 8));
    a.post(SendWr::new(1, SendOp::Send, Payload::Sges(&[sge])));
    let until = Instant::now() + Duration::from_millis(30);
    while Instant::now() < until {
        assert_empty(&*a.send_cq);
        assert_empty(&*b.recv_cq);
    }
    b.post_recv(2, &[place]);
    // No thread polls the sender's queue: the message is sent all the same.
    assert_eq!(wait_one(&*b.recv_cq).wr_id, 2);
    assert_eq!(wait_one(&*a.send_cq).wr_id, 1);
    assert_eq!(b.get(0, 8), b"patience");
}

/// A message that has arrived, as its sender knows, completes its receive, also when a request of the receiver fails
/// before anybody looks.
pub fn what_has_arrived_outlives_a_failed_request(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    a.put(0, b"arrived.");
    b.post_recv(2, &[b.sge(0, 8)]);
    b.post_recv(3, &[b.sge(8, 8)]);
    a.run_ok(SendOp::Send, &[a.sge(0, 8)]);
    let nowhere = RemoteAddr { rkey: a.mr.rkey() ^ 1 << 19, ..a.remote(0) };
    assert_eq!(b.run_failing(SendOp::Write(nowhere), &[b.sge(64, 8)]), WcStatus::RemoteAccess);
    let arrived = wait_one(&*b.recv_cq);
    assert_eq!((arrived.wr_id, arrived.result.map(|success| success.bytes)), (2, Ok(8)));
    assert_eq!(b.get(0, 8), b"arrived.");
    let flushed = wait_one(&*b.recv_cq);
    assert_eq!((flushed.wr_id, flushed.result.unwrap_err().status), (3, WcStatus::Flushed));
}

/// RNR without patience: the sender fails, and not before its time (S3.10).
pub fn a_sender_gives_up_without_a_receive(bench: &Bench) {
    let timer = Duration::from_millis(10);
    let ours =
        Options { rts: RtsAttr { rnr_retry: 3, ..RtsAttr::default() }, ..Options::default() };
    let theirs = Options { min_rnr_timer: timer, ..Options::default() };
    let (mut a, _b) = bench.pair_with(&ours, &theirs);
    let start = Instant::now();
    assert_eq!(a.run_failing(SendOp::Send, &[a.sge(0, 8)]), WcStatus::RnrRetryExceeded);
    assert!(start.elapsed() >= timer * 2, "{:?}", start.elapsed());
    assert_eq!(a.qp.state(), QpState::Err);
}

/// IBTA 9.7.5.2.6: the receiver sees a length error, the sender an invalid request.
pub fn a_message_that_is_too_long_fails_both_sides(bench: &Bench) {
    for bytes in [65, 100_000] {
        let (mut a, mut b) = bench.pair();
        b.put(0, &[0xee; 128]);
        let (sge, place) = (a.sge(0, bytes), b.sge(0, 64));
        b.post_recv(1, &[place]);
        let wr = SendWr::new(2, SendOp::Send, Payload::Sges(std::slice::from_ref(&sge)));
        let (sent, received) = transfer(&mut a, &mut b, wr);
        let known = Deviation::LongMessageBreaksTheQueuePair;
        for (done, standard) in
            [(sent, WcStatus::RemoteInvalidRequest), (received, WcStatus::LocalLength)]
        {
            bench.assert_status(done.result.unwrap_err().status, standard, known);
        }
        assert_eq!(b.get(64, 64), [0xee; 64]);
        eventually("both sides in error", || {
            a.qp.state() == QpState::Err && b.qp.state() == QpState::Err
        });
    }
}

/// A receive into memory that the key does not cover.
pub fn a_receive_with_a_wrong_key_fails_both_sides(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    let sge = a.sge(0, 8);
    let mut place = b.sge(0, 64);
    place.lkey ^= 1 << 20;
    b.post_recv(1, &[place]);
    let wr = SendWr::new(2, SendOp::Send, Payload::Sges(std::slice::from_ref(&sge)));
    let (sent, received) = transfer(&mut a, &mut b, wr);
    assert_eq!(sent.result.unwrap_err().status, WcStatus::RemoteOperation);
    bench.assert_status(
        received.result.unwrap_err().status,
        WcStatus::LocalProtection,
        Deviation::WrongKeyBreaksTheQueuePair,
    );
}

/// A WRITE posted after a message that waits is not done before it.
pub fn requests_behind_a_waiting_message_wait_too(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    a.put(0, b"firstone");
    let (sge, place) = (a.sge(0, 8), b.sge(0, 8));
    let data = *b"later";
    a.qp.post_send(&[
        SendWr::new(1, SendOp::Send, Payload::Sges(&[sge])),
        SendWr::new(2, SendOp::Write(b.remote(64)), Payload::Inline(&data)),
    ])
    .unwrap();
    for _ in 0..1000 {
        assert_empty(&*a.send_cq);
        assert_eq!(b.get(64, 5), [0; 5]);
    }
    b.post_recv(3, &[place]);
    let done = crate::wait_some(&*a.send_cq, 2);
    assert_eq!([done[0].wr_id, done[1].wr_id], [1, 2]);
    assert!(done.iter().all(|c| c.result.is_ok()));
    assert_eq!(wait_one(&*b.recv_cq).wr_id, 3);
    assert_eq!(b.get(64, 5), data);
}
