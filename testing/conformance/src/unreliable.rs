//! UC: unreliable connections.
use crate::{Bench, Options, Side, assert_empty, connect, eventually, pattern, wait_one};
use catchment_verbs::{Payload, QpState, QpTransition, SendOp, SendWr, Service, Success, WcOpcode};
use std::time::{Duration, Instant};

/// Few enough packets for every buffer on the path.
const BYTES: usize = 20_000;

fn options() -> Options {
    Options { service: Service::Uc, ..Options::default() }
}

fn pair(bench: &Bench) -> Option<(Side, Side)> {
    let options = options();
    bench.offers_service(Service::Uc).then(|| bench.pair_with(&options, &options))
}

/// Sends `bytes` with this operation, and waits until the sender is done with it.
fn send(a: &mut Side, op: SendOp, bytes: usize) {
    let done = a.run_ok(op, &[a.sge(0, bytes)]);
    let expected = if matches!(op, SendOp::Write(_) | SendOp::WriteImm(..)) {
        WcOpcode::Write
    } else {
        WcOpcode::Send
    };
    assert_eq!(done, Success::plain(expected, bytes as u64));
}

/// Once this WRITE is visible, everything before it on the connection was processed.
fn pass(a: &mut Side, b: &Side, mark: u8) {
    let data = [mark; 8];
    a.run(SendWr::new(99, SendOp::Write(b.remote(900_000)), Payload::Inline(&data))).unwrap();
    eventually("a WRITE behind a dropped message", || b.get(900_000, 8) == data);
}

/// WRITE and SEND, with and without immediate data, empty ones and those of many packets.
pub fn a_connection_writes_and_sends(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    for bytes in [0, 1, 4096, BYTES] {
        let data = pattern(bytes as u64 + 1, bytes);
        a.put(0, &data);
        send(&mut a, SendOp::Write(b.remote(7)), bytes);
        eventually("the bytes of a WRITE", || b.get(7, bytes) == data);
        let requests = [
            (SendOp::Send, WcOpcode::Recv, None),
            (SendOp::SendImm(5), WcOpcode::Recv, Some(5)),
            (SendOp::WriteImm(b.remote(100_000), 6), WcOpcode::RecvWriteImm, Some(6)),
        ];
        for (n, (op, opcode, imm)) in (1..).zip(requests) {
            let place = b.sge(100_000, BYTES);
            b.put(100_000, &[0; BYTES]);
            b.post_recv(n, &[place]);
            send(&mut a, op, bytes);
            let done = wait_one(&*b.recv_cq);
            let expected = Success::plain(opcode, bytes as u64).with_imm(imm);
            assert_eq!((done.wr_id, done.result), (n, Ok(expected)));
            assert!(b.get(100_000, bytes) == data, "{op:?}, {bytes} bytes");
        }
    }
}

/// A message without a receive is dropped silently; the next one is taken.
pub fn a_message_without_a_receive_is_dropped(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    a.put(0, &pattern(1, BYTES));
    send(&mut a, SendOp::Send, BYTES);
    pass(&mut a, &b, 1);
    b.post_recv(3, &[b.sge(0, BYTES)]);
    a.put(0, &pattern(2, BYTES));
    send(&mut a, SendOp::Send, BYTES);
    let done = wait_one(&*b.recv_cq);
    assert_eq!((done.wr_id, done.result.is_ok()), (3, true));
    assert!(b.get(0, BYTES) == pattern(2, BYTES));
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
}

/// A WRITE with a wrong key changes nothing and breaks nothing.
pub fn a_write_with_a_wrong_key_is_dropped(bench: &Bench) {
    let Some((mut a, b)) = pair(bench) else { return };
    a.put(0, &[0xee; 64]);
    let mut wrong = b.remote(0);
    wrong.rkey ^= 1 << 20;
    send(&mut a, SendOp::Write(wrong), 64);
    pass(&mut a, &b, 2);
    assert_eq!(b.get(0, 64), [0; 64]);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
}

/// In SQD requests wait, and are sent afterwards; after a reset the queue pair can connect again.
pub fn a_connection_is_drained_and_made_anew(bench: &Bench) {
    let Some((mut a, mut b)) = pair(bench) else { return };
    a.qp.modify(QpTransition::ToSqd).unwrap();
    a.post(SendWr::new(1, SendOp::Write(b.remote(0)), Payload::Inline(&[1; 8])));
    let until = Instant::now() + Duration::from_millis(20);
    while Instant::now() < until {
        assert_empty(&*a.send_cq);
    }
    a.qp.modify(QpTransition::ToRtsUnreliable).unwrap();
    assert!(wait_one(&*a.send_cq).result.is_ok());
    pass(&mut a, &b, 3);
    assert_eq!(b.get(0, 8), [1; 8]);
    for side in [&mut a, &mut b] {
        side.qp.modify(QpTransition::ToReset).unwrap();
    }
    connect((&mut a, &options()), (&mut b, &options()));
    pass(&mut a, &b, 4);
}
