//! Rate limits of queue pairs: no byte is lost, none is out of order, and the limit is there.
//!
//! No case measures a time. A limit of a thousand bits a second shows by what does not complete:
//! that would take hours.
use crate::{Bench, Options, Side, connect, pattern, sleep_for, wait_some};
use catchment_verbs::{
    Completion, Payload, QpTransition, RateError, RateLimit, RateRange, SendOp, SendWr, WcOpcode,
};

const PIECE: usize = 32 << 10;
const PIECES: usize = 16;
const ALL: usize = PIECE * PIECES;
/// Fast enough for a test, slow enough that most requests wait.
const BRISK_BPS: u64 = 100_000_000;

/// The range of the device; `None` is noted.
fn range(bench: &Bench) -> Option<RateRange> {
    let range = bench.caps().rate;
    bench.offers("rate limits", range.is_some());
    range
}

/// A rate that the device can keep, near [`BRISK_BPS`].
fn brisk(bench: &Bench) -> Option<u64> {
    range(bench).map(|range| BRISK_BPS.clamp(range.min_bps, range.max_bps))
}

fn post_all(a: &mut Side, b: &Side) {
    for piece in 0..PIECES {
        let sges = [a.sge(piece * PIECE, PIECE)];
        let op = SendOp::Write(b.remote(piece * PIECE));
        a.post(SendWr::new(piece as u64, op, Payload::Sges(&sges)));
    }
}

fn assert_in_order(done: &[Completion]) {
    for (n, done) in done.iter().enumerate() {
        assert_eq!(done.wr_id, n as u64);
        let success = done.result.unwrap();
        assert_eq!((success.opcode, success.bytes), (WcOpcode::Write, PIECE as u64));
    }
}

/// Everything arrives, in the order of posting, by polling and by sleeping.
pub fn a_limited_queue_pair_moves_every_byte_in_order(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let Some(rate) = brisk(bench) else { return };
    a.qp.set_rate(Some(RateLimit::new(rate))).unwrap();
    for round in 0..2 {
        let data = pattern(round, ALL);
        a.put(0, &data);
        post_all(&mut a, &b);
        let done = match round {
            0 => wait_some(&*a.send_cq, PIECES),
            // Nobody polls meanwhile.
            _ => sleep_for(&*a.channel, &*a.send_cq, PIECES),
        };
        assert_in_order(&done);
        assert!(b.get(0, ALL) == data, "round {round}");
    }
}

/// Messages, with their receives, and immediates.
pub fn a_limited_queue_pair_sends_messages(bench: &Bench) {
    let (mut a, mut b) = bench.pair();
    let Some(rate) = brisk(bench) else { return };
    a.qp.set_rate(Some(RateLimit::new(rate))).unwrap();
    let data = pattern(3, ALL);
    a.put(0, &data);
    for piece in 0..PIECES {
        let sges = [b.sge(piece * PIECE, PIECE)];
        b.post_recv(piece as u64, &sges);
    }
    for piece in 0..PIECES {
        let sges = [a.sge(piece * PIECE, PIECE)];
        a.post(SendWr::new(piece as u64, SendOp::SendImm(piece as u32), Payload::Sges(&sges)));
    }
    for (n, done) in wait_some(&*b.recv_cq, PIECES).iter().enumerate() {
        let success = done.result.unwrap();
        assert_eq!((success.imm, success.bytes), (Some(n as u32), PIECE as u64));
    }
    assert!(b.get(0, ALL) == data);
    wait_some(&*a.send_cq, PIECES);
}

/// What waits for a slow rate is sent at once when the limit is removed.
pub fn a_limit_can_be_taken_away_while_requests_wait(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let Some(range) = range(bench) else { return };
    a.qp.set_rate(Some(RateLimit::new(range.min_bps))).unwrap();
    assert_limited(&mut a, &b, range);
}

/// A reset forgets the requests and not the limit.
pub fn a_limit_outlives_a_reset(bench: &Bench) {
    let options = Options::default();
    let (mut a, mut b) = bench.pair();
    let Some(range) = range(bench) else { return };
    a.qp.set_rate(Some(RateLimit::new(range.min_bps))).unwrap();
    for side in [&mut a, &mut b] {
        side.qp.modify(QpTransition::ToReset).unwrap();
    }
    connect((&mut a, &options), (&mut b, &options));
    assert_limited(&mut a, &b, range);
}

/// Requests wait where the lowest rate makes them wait long, and are sent without a limit.
fn assert_limited(a: &mut Side, b: &Side, range: RateRange) {
    let data = pattern(5, ALL);
    a.put(0, &data);
    post_all(a, b);
    let mut done = vec![Completion::EMPTY; PIECES];
    let mut seen = 0;
    if range.min_bps <= 1_000_000 {
        for _ in 0..100 {
            seen += a.send_cq.poll(&mut done[seen..]).unwrap();
            std::thread::yield_now();
        }
        assert!(seen < PIECES, "nothing was held back");
    }
    a.qp.set_rate(None).unwrap();
    let rest = wait_some(&*a.send_cq, PIECES - seen);
    done[seen..].copy_from_slice(&rest);
    assert_in_order(&done);
    assert!(b.get(0, ALL) == data);
}

/// Rates out of range, and devices without limits, are refused by name.
pub fn rates_that_cannot_be_kept_are_refused(bench: &Bench) {
    let mut a = bench.side(&Options::default());
    let Some(range) = a.context.caps().rate else {
        let refused = a.qp.set_rate(Some(RateLimit::new(1_000_000)));
        assert!(matches!(refused, Err(RateError::Unsupported(_))), "{refused:?}");
        return;
    };
    for rate in [range.min_bps, range.max_bps] {
        assert_eq!(a.qp.set_rate(Some(RateLimit::new(rate))), Ok(()));
    }
    for asked in [0, range.min_bps - 1, range.max_bps + 1] {
        let refused = RateError::OutOfRange {
            asked_bps: asked,
            min_bps: range.min_bps,
            max_bps: range.max_bps,
        };
        assert_eq!(a.qp.set_rate(Some(RateLimit::new(asked))), Err(refused));
    }
    assert_eq!(a.qp.set_rate(None), Ok(()));
}
