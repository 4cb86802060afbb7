//! What becomes visible when.
use crate::{Bench, Options, wait_one};
use catchment_verbs::{Payload, SendOp, SendWr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Caps.data_in_order: a reader that sees the last eight bytes sees all of that WRITE.
pub fn the_last_word_of_a_write_comes_last(bench: &Bench) {
    if !bench.caps().data_in_order {
        return;
    }
    for bytes in [64, 4096, 100_000] {
        let (mut a, b) = bench.pair();
        let stop = Arc::new(AtomicBool::new(false));
        let (mr, done) = (b.mr.clone(), stop.clone());
        let reader = std::thread::spawn(move || {
            let memory = mr.region().slice(0, bytes).unwrap();
            let mut seen = vec![0; bytes - 8];
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let n = memory.load_u64(bytes - 8, Ordering::Acquire).unwrap();
                assert!(n >= last, "{n} after {last}");
                last = n;
                memory.read_at(0, &mut seen).unwrap();
                std::sync::atomic::fence(Ordering::Acquire);
                // Bytes of the next WRITE may be there already, but none of an earlier one.
                let next = memory.load_u64(bytes - 8, Ordering::Acquire).unwrap() + 1;
                for word in seen.chunks_exact(8) {
                    assert!(is_of(word, n..=next), "{word:x?} under the last word {n}");
                }
                std::thread::yield_now();
            }
            last
        });
        let sge = a.sge(0, bytes);
        let mut count = 0;
        for n in crate::rounds_while_quick(2_000_000 / bytes as u64 + 500) {
            a.put(0, &n.to_ne_bytes().repeat(bytes / 8));
            a.run_ok(SendOp::Write(b.remote(0)), &[sge]);
            count = n;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() <= count);
        assert_eq!(b.get(bytes - 8, 8), count.to_ne_bytes());
    }
}

/// Whether every byte of a word is of one of these numbers: a word of data may be seen half written, as only the last
/// one of a WRITE is whole.
fn is_of(word: &[u8], numbers: RangeInclusive<u64>) -> bool {
    let number = u64::from_ne_bytes(word.try_into().unwrap());
    let is_there = |at: usize| numbers.clone().any(|number| number.to_ne_bytes()[at] == word[at]);
    numbers.contains(&number) || (0..8).all(is_there)
}

/// Caps.writes_in_order: a reader that sees a WRITE sees all earlier ones.
pub fn a_later_write_is_seen_later(bench: &Bench) {
    if !bench.caps().writes_in_order {
        return;
    }
    const BYTES: usize = 3000;
    let (mut a, b) = bench.pair();
    let stop = Arc::new(AtomicBool::new(false));
    let newest = Arc::new(AtomicU64::new(0));
    let (mr, done, seen) = (b.mr.clone(), stop.clone(), newest.clone());
    let reader = std::thread::spawn(move || {
        let memory = mr.region().whole();
        let mut data = [0; BYTES];
        while !done.load(Ordering::Relaxed) {
            let before = memory.load_u64(8192, Ordering::Acquire).unwrap();
            memory.read_at(64, &mut data).unwrap();
            std::sync::atomic::fence(Ordering::Acquire);
            let after = memory.load_u64(8192, Ordering::Acquire).unwrap();
            // The data of the status, or of the one WRITE that follows.
            for word in data.chunks_exact(8) {
                let is_right = is_of(word, before..=after + 1);
                assert!(is_right, "data {word:x?} between status {before} and {after}");
            }
            seen.store(after, Ordering::Relaxed);
            std::thread::yield_now();
        }
    });
    let sges = [a.sge(0, BYTES)];
    // On a busy machine the reader may come late: it must have polled while WRITEs arrived.
    let has_looked = || newest.load(Ordering::Relaxed) > 0 || reader.is_finished();
    let mut rounds = crate::rounds_while_quick(20_000);
    for n in (1..).take_while(|_| rounds.next().is_some() || !has_looked()) {
        let status = u64::to_ne_bytes(n);
        a.put(0, &status.repeat(BYTES / 8));
        a.qp.post_send(&[
            SendWr::new(1, SendOp::Write(b.remote(64)), Payload::Sges(&sges)).unsignaled(),
            SendWr::new(2, SendOp::Write(b.remote(8192)), Payload::Inline(&status)),
        ])
        .unwrap();
        assert!(wait_one(&*a.send_cq).result.is_ok());
    }
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
}

/// Different operations, one order.
pub fn completions_come_in_the_order_of_posting(bench: &Bench) {
    let (mut a, mut b) = bench.pair_with(&Options::default(), &Options::default());
    let sges = [a.sge(0, 8)];
    let places = [b.sge(512, 8)];
    for n in 0..4 {
        b.post_recv(n, &places);
    }
    let ops = [
        SendOp::Write(b.remote(0)),
        SendOp::Send,
        SendOp::Read(b.remote(0)),
        SendOp::WriteImm(b.remote(8), 7),
        SendOp::Write(b.remote(16)),
        SendOp::SendImm(8),
        SendOp::Read(b.remote(8)),
        SendOp::Send,
    ];
    let requests: Vec<_> =
        (0..).zip(ops).map(|(n, op)| SendWr::new(n, op, Payload::Sges(&sges))).collect();
    a.qp.post_send(&requests).unwrap();
    for n in 0..8 {
        let done = wait_one(&*a.send_cq);
        assert!(done.wr_id == n && done.result.is_ok(), "{done:?}");
    }
    for n in 0..4 {
        let done = wait_one(&*b.recv_cq);
        assert!(done.wr_id == n && done.result.is_ok(), "{done:?}");
    }
}
