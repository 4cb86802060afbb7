//! Capacities, indices of refused requests, flushing, overrun.
use crate::{Bench, Options, assert_empty, connected, eventually, wait_one, wait_some};
use catchment_verbs::{
    AsyncEvent, Completion, CqError, Payload, PostFailure, QpInit, QpState, QpTransition, RecvWr,
    SendOp, SendWr, WcStatus,
};

/// Capacity that a queue may have when this much was asked for.
fn fits(capacity: usize, asked: usize, strict: bool) -> bool {
    if strict { capacity == asked } else { capacity >= asked }
}

/// The send queue is full at its capacity, and one poll makes room for what it completed.
pub fn a_full_queue_takes_more_after_polling(bench: &Bench) {
    let options = Options { max_send_wr: 8, send_cqe: 8, ..Options::default() };
    let (mut a, b) = bench.pair_with(&options, &Options::default());
    let strict = a.context.caps().strict_capacity;
    let at = b.remote(0);
    let requests: Vec<_> = (0..100)
        .map(|n| SendWr::new(n, SendOp::Write(at), Payload::Inline(&[1])).unsignaled())
        .collect();
    let full = a.qp.post_send(&requests).unwrap_err();
    assert!(fits(full.index, 8, strict), "{full}");
    assert_eq!(full.reason, PostFailure::QueueFull(full.index as u32));
    // Unsignaled requests free nothing by themselves.
    assert_empty(&*a.send_cq);
    assert!(a.qp.post_send(&requests[..1]).is_err());

    let (mut a, b) = bench.pair_with(&options, &Options::default());
    let at = b.remote(0);
    let wr = |n| SendWr::new(n, SendOp::Write(at), Payload::Inline(&[1]));
    for n in 0..8 {
        a.post(wr(n));
    }
    if strict {
        assert!(a.qp.post_send(&[wr(8)]).is_err());
    }
    assert_eq!(wait_one(&*a.send_cq).wr_id, 0);
    a.post(wr(9));
    if strict {
        assert!(a.qp.post_send(&[wr(10)]).is_err());
    }
    let done = wait_some(&*a.send_cq, 8);
    assert_eq!(done[7].wr_id, 9);
}

/// S3.11: with nothing there a poll returns 0, again and again, whatever the queue is connected to; it
/// would otherwise wait for ever. What then comes is found once.
pub fn an_empty_queue_is_polled_without_waiting(bench: &Bench) {
    let unconnected = bench.side(&Options::default());
    (0..1000).for_each(|_| assert_empty(&*unconnected.send_cq));
    let (mut a, b) = bench.pair();
    for n in 0..10u64 {
        (0..100).for_each(|_| assert_empty(&*a.send_cq));
        a.post(SendWr::new(n, SendOp::Write(b.remote(0)), Payload::Inline(&[1])));
        assert_eq!(wait_one(&*a.send_cq).wr_id, n);
        (0..100).for_each(|_| assert_empty(&*a.send_cq));
        (0..100).for_each(|_| assert_empty(&*b.recv_cq));
    }
}

/// S1.20: SQ 2 and CQ 1 at the sender, nothing at the receiver; with SQ 1 the second request of
/// the pair is refused.
pub fn the_smallest_queues_of_the_paper_suffice(bench: &Bench) {
    let sender = |max_send_wr| Options {
        max_send_wr,
        max_recv_wr: 0,
        send_cqe: 1,
        recv_cqe: 1,
        ..Options::default()
    };
    let receiver = Options { max_send_wr: 1, ..sender(1) };
    let (mut a, b) = bench.pair_with(&sender(2), &receiver);
    let sges = [a.sge(0, 64)];
    let (block, status) = (b.remote(0), b.remote(4096));
    let pair = |n: u64| {
        [
            SendWr::new(n, SendOp::Write(block), Payload::Sges(&sges)).unsignaled(),
            SendWr::new(n, SendOp::Write(status), Payload::Inline(&[1])),
        ]
    };
    for n in 0..crate::rounds(20_000) {
        a.put(0, &n.to_ne_bytes());
        a.qp.post_send(&pair(n)).unwrap();
        let done = wait_one(&*a.send_cq);
        assert!(done.wr_id == n && done.result.is_ok(), "{done:?}");
    }
    if a.context.caps().strict_capacity {
        let (mut a, _b) = bench.pair_with(&sender(1), &receiver);
        let refused = a.qp.post_send(&pair(0)).unwrap_err();
        assert_eq!(refused.index, 1);
        assert_eq!(refused.reason, PostFailure::QueueFull(1));
    }
}

/// S3.9: exactly the first request that cannot be posted is named, and those before it are done.
pub fn the_failed_index_is_exact(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let sges = [a.sge(0, 8)];
    let many = [sges[0]; 5];
    let long = [0; 257];
    let small = bench.caps().max_inline_bytes < 257;
    let good = SendWr::new(1, SendOp::Write(b.remote(0)), Payload::Sges(&sges));
    let op = good.op;
    let bad = [
        SendWr::new(2, op, Payload::Sges(&many)),
        SendWr::new(2, op, Payload::Inline(&long)),
        SendWr::new(2, SendOp::Read(b.remote(0)), Payload::Inline(&[1])),
        SendWr::new(2, SendOp::FetchAdd { remote: b.remote(0), add: 1 }, Payload::Sges(&many[..2])),
    ];
    for (case, wrong) in bad.into_iter().enumerate() {
        for index in 0..4 {
            let mut requests = vec![good; index];
            requests.push(wrong);
            requests.push(good);
            let error = a.qp.post_send(&requests).unwrap_err();
            assert_eq!(error.index, index, "case {case}: {error}");
            let expected = match case {
                0 => matches!(error.reason, PostFailure::TooManySges { asked: 5, limit: 4 }),
                1 => {
                    let exact = PostFailure::InlineTooLong { asked: 257, limit: 256 };
                    small || error.reason == exact
                }
                _ => matches!(error.reason, PostFailure::Payload(_)),
            };
            assert!(expected, "case {case}: {error}");
            assert!(wait_some(&*a.send_cq, index).iter().all(|c| c.wr_id == 1 && c.result.is_ok()));
        }
    }
    let good = RecvWr { wr_id: 1, sges: &sges };
    let wrong = RecvWr { wr_id: 2, sges: &many };
    assert_eq!(a.qp.post_recv(&[good, good, wrong, good]).unwrap_err().index, 2);
    assert_eq!(a.qp.state(), QpState::Rts);
}

/// The receive queue is full at its capacity; 0 is a capacity.
pub fn a_full_receive_queue_says_so(bench: &Bench) {
    for capacity in [0, 3] {
        let options = Options { max_recv_wr: capacity, ..Options::default() };
        let (mut a, mut b) = bench.pair_with(&options, &Options::default());
        let strict = a.context.caps().strict_capacity;
        let sges = [a.sge(0, 8)];
        let requests = [RecvWr { wr_id: 1, sges: &sges }; 100];
        let full = a.qp.post_recv(&requests).unwrap_err();
        assert!(fits(full.index, capacity as usize, strict), "{full}");
        if capacity > 0 {
            let sge = b.sge(0, 8);
            let wr = SendWr::new(5, SendOp::Send, Payload::Sges(std::slice::from_ref(&sge)));
            crate::messages::transfer(&mut b, &mut a, wr);
            a.post_recv(9, &sges);
            assert!(a.qp.post_recv(&requests[..1]).is_err());
        }
    }
}

/// Going to the error state brings back what is outstanding: each once, in order, at both queues.
pub fn everything_outstanding_is_flushed_once_and_in_order(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let sges = [a.sge(0, 8)];
    for n in 0..10 {
        // No receive is posted at the peer: all of these wait.
        let wr = SendWr::new(n, SendOp::Send, Payload::Sges(&sges));
        a.post(if n % 2 == 0 { wr } else { wr.unsignaled() });
        a.post_recv(100 + n, &sges);
    }
    a.qp.modify(QpTransition::ToErr).unwrap();
    for (cq, first) in [(&a.send_cq, 0), (&a.recv_cq, 100)] {
        for (n, completion) in wait_some(&**cq, 10).iter().enumerate() {
            assert_eq!(completion.wr_id, first + n as u64);
            assert_eq!(completion.result.unwrap_err().status, WcStatus::Flushed);
        }
        assert_empty(&**cq);
    }
    // Later ones complete at once.
    a.post(SendWr::new(50, SendOp::Write(b.remote(0)), Payload::Sges(&sges)));
    a.post_recv(51, &sges);
    assert_eq!(wait_one(&*a.send_cq).wr_id, 50);
    assert_eq!(wait_one(&*a.recv_cq).wr_id, 51);
    assert_eq!(b.get(0, 8), [0; 8]);
}

/// A completion that finds its queue full fails the queue pair, and events report both.
pub fn an_overrun_breaks_the_queue_pair(bench: &Bench) {
    // A completion queue may be longer than asked for.
    let entries = bench.open().create_cq(2, None).unwrap().capacity();
    let options = Options { max_send_wr: entries + 1, send_cqe: 2, ..Options::default() };
    let (mut a, b) = bench.pair_with(&options, &Options::default());
    for n in 0..=u64::from(entries) {
        a.post(SendWr::new(n, SendOp::Write(b.remote(0)), Payload::Inline(&[1])));
    }
    // Polling before would make room.
    eventually("the error state", || a.qp.state() == QpState::Err);
    let mut out = [Completion::EMPTY; 4];
    assert_eq!(a.send_cq.poll(&mut out), Err(CqError::Overrun(entries)));
    let mut events = Vec::new();
    eventually("the events", || {
        events.extend(a.context.async_event());
        events.contains(&AsyncEvent::CqOverrun)
    });
    // A new queue pair on the same device works.
    let again = Options::default();
    let (mut c, d) = connected((a.context.clone(), &again), (bench.open(), &again));
    c.run_ok(SendOp::Write(d.remote(0)), &[c.sge(0, 8)]);
}

/// No completion of an unsignaled request that succeeds; always one of a request that fails.
pub fn unsignaled_requests_complete_silently(bench: &Bench) {
    let (mut a, b) = bench.pair();
    let wr = |n| SendWr::new(n, SendOp::Write(b.remote(0)), Payload::Inline(&[1]));
    for n in 0..10 {
        a.post(wr(n).unsignaled());
    }
    a.post(wr(10));
    assert_eq!(wait_one(&*a.send_cq).wr_id, 10);
    let mut wrong = b.remote(0);
    wrong.rkey ^= 1 << 17;
    a.qp.post_send(&[
        SendWr::new(11, SendOp::Write(wrong), Payload::Inline(&[1])).unsignaled(),
        wr(12).unsignaled(),
    ])
    .unwrap();
    let done = wait_some(&*a.send_cq, 2);
    let status = |n: usize| done[n].result.unwrap_err().status;
    assert_eq!((done[0].wr_id, status(0)), (11, WcStatus::RemoteAccess));
    assert_eq!((done[1].wr_id, status(1)), (12, WcStatus::Flushed));
}

/// The smallest queue pair on the queues of a side.
pub fn init_of(side: &crate::Side) -> QpInit {
    QpInit { recv_cq: side.recv_cq.clone(), ..QpInit::rc(&side.send_cq, 1, 1) }
}
