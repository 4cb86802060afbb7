//! Every one-sided operation moves the right bytes and no others.
use crate::{ALL, Bench, Options, Side, connected, pattern};
use catchment_verbs::{Payload, PostFailure, SendOp, SendWr, WcOpcode, WcStatus};

const LENGTHS: [usize; 16] =
    [0, 1, 2, 7, 8, 9, 15, 16, 63, 64, 65, 4095, 4096, 4097, 70_000, 300_000];
const GUARD: usize = 64;

/// WRITE, of many lengths and alignments.
pub fn writes_move_exactly_their_bytes(bench: &Bench) {
    let (mut a, b) = bench.pair();
    for (n, bytes) in LENGTHS.into_iter().enumerate() {
        for shift in [0, 1, 3] {
            let data = pattern(n as u64, bytes);
            a.put(shift, &data);
            let guard = vec![0xee; bytes + 2 * GUARD];
            b.put(0, &guard);
            let to = GUARD + (n + shift) % 8;
            let done = a.run_ok(SendOp::Write(b.remote(to)), &[a.sge(shift, bytes)]);
            assert_eq!((done.opcode, done.bytes), (WcOpcode::Write, bytes as u64));
            assert_around(&b, to, &data);
        }
    }
}

/// READ, of many lengths and alignments.
pub fn reads_move_exactly_their_bytes(bench: &Bench) {
    let (mut a, b) = bench.pair();
    for (n, bytes) in LENGTHS.into_iter().enumerate() {
        let data = pattern(n as u64, bytes);
        b.put(n, &data);
        a.put(0, &vec![0xee; bytes + 2 * GUARD]);
        let done = a.run_ok(SendOp::Read(b.remote(n)), &[a.sge(GUARD + 3, bytes)]);
        assert_eq!((done.opcode, done.bytes), (WcOpcode::Read, bytes as u64));
        assert_around(&a, GUARD + 3, &data);
    }
}

fn assert_around(side: &Side, at: usize, data: &[u8]) {
    assert!(side.get(at, data.len()) == data, "{} bytes", data.len());
    let before = side.get(at - GUARD / 2, GUARD / 2);
    let after = side.get(at + data.len(), GUARD / 2);
    assert!(before.iter().chain(&after).all(|byte| *byte == 0xee));
}

/// Several elements make one message, in their order; empty ones add nothing.
pub fn elements_are_gathered_and_scattered_in_order(bench: &Bench) {
    let (mut a, b) = bench.pair();
    a.put(0, &pattern(1, 5000));
    let sges = [a.sge(4000, 13), a.sge(0, 0), a.sge(7, 100), a.sge(2000, 903)];
    let mut expected = a.get(4000, 13);
    expected.extend(a.get(7, 100));
    expected.extend(a.get(2000, 903));
    assert_eq!(a.run_ok(SendOp::Write(b.remote(8)), &sges).bytes, 1016);
    assert_eq!(b.get(8, 1016), expected);
    let sges = [a.sge(10_000, 1), a.sge(20_000, 1000), a.sge(30_000, 15)];
    a.run_ok(SendOp::Read(b.remote(8)), &sges);
    let mut seen = a.get(10_000, 1);
    seen.extend(a.get(20_000, 1000));
    seen.extend(a.get(30_000, 15));
    assert_eq!(seen, expected);
}

/// The buffer of inline data is free when the call returns.
pub fn inline_data_may_be_reused_at_once(bench: &Bench) {
    let (mut a, b) = bench.pair();
    for bytes in [1, 2, 8, 24, 255, 256] {
        let data = pattern(bytes as u64, bytes);
        let mut buffer = data.clone();
        a.post(SendWr::new(1, SendOp::Write(b.remote(40)), Payload::Inline(&buffer)));
        buffer.fill(0);
        assert!(crate::wait_one(&*a.send_cq).result.is_ok());
        assert_eq!(b.get(40, bytes), data);
    }
}

/// Compare-and-swap and fetch-and-add.
pub fn atomics_return_what_was_there(bench: &Bench) {
    let (mut a, b) = bench.pair();
    if !a.context.caps().atomics {
        return;
    }
    let answer = a.sge(16, 8);
    let before = |a: &Side| u64::from_ne_bytes(a.get(16, 8).try_into().unwrap());
    let value = || u64::from_ne_bytes(b.get(64, 8).try_into().unwrap());
    b.put(64, &5u64.to_ne_bytes());
    let cas = |compare, swap| SendOp::CompareSwap { remote: b.remote(64), compare, swap };
    let done = a.run_ok(cas(5, 9), &[answer]);
    assert_eq!((done.opcode, done.bytes), (WcOpcode::CompareSwap, 8));
    assert_eq!((before(&a), value()), (5, 9));
    a.run_ok(cas(5, 11), &[answer]);
    assert_eq!((before(&a), value()), (9, 9));
    let add = SendOp::FetchAdd { remote: b.remote(64), add: u64::MAX - 3 };
    assert_eq!(a.run_ok(add, &[answer]).opcode, WcOpcode::FetchAdd);
    assert_eq!((before(&a), value()), (9, 5));
}

/// IBTA 9.4.5.1: the address of an atomic is a multiple of eight. Refused while posting, or by the
/// peer.
pub fn misaligned_atomics_are_refused(bench: &Bench) {
    if !bench.caps().atomics {
        return;
    }
    let (mut a, b) = bench.pair();
    b.put(0, &[7; 32]);
    let answer = a.sge(0, 8);
    let add = SendOp::FetchAdd { remote: b.remote(12), add: 1 };
    let sges = [answer];
    match a.qp.post_send(&[SendWr::new(1, add, Payload::Sges(&sges))]) {
        Err(refused) => assert!(matches!(refused.reason, PostFailure::Payload(_))),
        Ok(()) => {
            let failure = crate::wait_one(&*a.send_cq).result.unwrap_err();
            assert_eq!(failure.status, WcStatus::RemoteInvalidRequest);
        }
    }
    assert_eq!(b.get(0, 32), [7; 32]);
}

/// Two queue pairs of one context.
pub fn a_context_can_talk_to_itself(bench: &Bench) {
    let context = bench.open();
    let options = Options::default();
    let (mut a, mut b) = connected((context.clone(), &options), (context, &options));
    assert_ne!(a.qp.qpn(), b.qp.qpn());
    a.put(0, b"to myself");
    let sge = a.sge(0, 9);
    a.run_ok(SendOp::Write(b.remote(100)), &[sge]);
    assert_eq!(b.get(100, 9), b"to myself");
    b.post_recv(5, &[b.sge(0, 64)]);
    a.run_ok(SendOp::Send, &[sge]);
    assert_eq!(crate::wait_one(&*b.recv_cq).wr_id, 5);
    assert_eq!(b.get(0, 9), b"to myself");
}

/// Sixteen clients of one server, each with its own queue pair; one that fails harms no other.
pub fn one_collector_serves_many_sources(bench: &Bench) {
    let server = bench.open();
    let options = Options { bytes: 4096, ..Options::default() };
    let mut pairs: Vec<_> =
        (0..16).map(|_| connected((bench.open(), &options), (server.clone(), &options))).collect();
    let (source, sink) = &mut pairs[7];
    let mut wrong = sink.remote(0);
    wrong.rkey ^= 1 << 17;
    let sge = source.sge(0, 8);
    assert_eq!(source.run_failing(SendOp::Write(wrong), &[sge]), WcStatus::RemoteAccess);
    for (n, (source, sink)) in pairs.iter_mut().enumerate().filter(|(n, _)| *n != 7) {
        let data = pattern(n as u64, 1000);
        source.put(0, &data);
        source.run_ok(SendOp::Write(sink.remote(8)), &[source.sge(0, 1000)]);
        assert_eq!(sink.get(8, 1000), data);
    }
    assert_eq!(ALL, options.access);
}
