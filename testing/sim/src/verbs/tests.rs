//! Operations take their configured times.
use super::{Fabric, Next, OpTime, Pace, Stuck, Thread, Times, run};
use catchment_verbs::{
    Access, Completion, Context, Cq, Mr, Payload, Pd, Provider, Qp, QpInit, RateLimit, RecvWr,
    RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Sge,
};
use std::sync::Arc;
use std::time::Duration;

const fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// The times of the paper, as far as published.
fn times() -> Times {
    Times {
        write: OpTime::occupying(ns(3500)).with_ps_per_byte(1000),
        write_inline: OpTime::one_way(ns(2000)),
        read: OpTime::round_trip(ns(5100)),
        send: OpTime::one_way(ns(70_000)),
        linked: Duration::ZERO,
    }
}

struct End {
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
    _pd: Arc<dyn Pd>,
    _context: Arc<dyn Context>,
}

impl End {
    fn new(fabric: &Fabric) -> Self {
        let context = fabric.provider().open("sim0").unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let init = QpInit { max_inline_bytes: 16, strict: true, ..QpInit::rc(&cq, 16, 16) };
        Self {
            qp: pd.create_qp(init).unwrap(),
            mr: pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE).unwrap(),
            cq,
            _pd: pd,
            _context: context,
        }
    }

    fn pair(fabric: &Fabric) -> (Self, Self) {
        let (mut a, mut b) = (Self::new(fabric), Self::new(fabric));
        let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
        for (end, peer) in [(&mut a, eb), (&mut b, ea)] {
            end.qp.connect(Access::REMOTE, RtrAttr::new(peer), RtsAttr::default()).unwrap();
        }
        (a, b)
    }

    fn sge(&self, bytes: u32) -> [Sge; 1] {
        [Sge { addr: self.mr.addr(), bytes, lkey: self.mr.lkey() }]
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.mr.addr() + offset, rkey: self.mr.rkey() }
    }

    fn byte(&self, offset: usize) -> u8 {
        let mut byte = [0];
        self.mr.region().whole().read_at(offset, &mut byte).unwrap();
        byte[0]
    }

    fn set(&self, offset: usize, byte: u8) {
        self.mr.region().whole().write_at(offset, &[byte]).unwrap();
    }

    fn done(&self) -> Vec<u64> {
        let mut out = [Completion::EMPTY; 16];
        let count = self.cq.poll(&mut out).unwrap();
        assert!(out[..count].iter().all(|c| c.result.is_ok()), "{out:?}");
        out[..count].iter().map(|c| c.wr_id).collect()
    }
}

#[test]
fn a_block_and_its_status_byte_take_the_time_of_one_write() {
    let fabric = Fabric::new(times(), Pace::ByCaller);
    let (mut a, b) = End::pair(&fabric);
    a.set(99, 7);
    let sges = a.sge(100);
    let block = SendWr::new(1, SendOp::Write(b.at(0)), Payload::Sges(&sges)).unsignaled();
    let status = SendWr::new(2, SendOp::Write(b.at(1000)), Payload::Inline(&[1]));
    a.qp.post_send(&[block, status]).unwrap();
    fabric.advance_to(ns(3599));
    assert_eq!((a.done(), b.byte(99), b.byte(1000)), (vec![], 0, 0));
    // Bytes are read when they are sent, not when they are posted.
    a.set(98, 8);
    fabric.advance_to(ns(3600));
    assert_eq!((b.byte(99), b.byte(98)), (7, 8));
    // One byte later: a nanosecond here.
    fabric.advance_to(ns(3601));
    assert_eq!((a.done(), b.byte(1000)), (vec![2], 1));
}

#[test]
fn a_read_sees_what_is_there_half_way() {
    for (change_at, seen) in [(2549, 5), (2551, 0)] {
        let fabric = Fabric::new(times(), Pace::ByCaller);
        let (mut a, b) = End::pair(&fabric);
        let sges = a.sge(1);
        let read = SendWr::new(1, SendOp::Read(b.at(0)), Payload::Sges(&sges));
        a.qp.post_send(&[read]).unwrap();
        fabric.advance_to(ns(change_at));
        b.set(0, 5);
        fabric.advance_to(ns(5099));
        assert_eq!((a.done(), a.byte(0)), (vec![], 0));
        fabric.advance_to(ns(5100));
        assert_eq!((a.done(), a.byte(0)), (vec![1], seen));
    }
}

#[test]
fn writes_follow_each_other_and_messages_overlap() {
    let fabric = Fabric::new(times(), Pace::ByCaller);
    let (mut a, mut b) = End::pair(&fabric);
    let sges = a.sge(0);
    for n in 0..3 {
        let receive = RecvWr { wr_id: 10 + n, sges: &[] };
        b.qp.post_recv(&[receive]).unwrap();
    }
    for n in 0..2 {
        let write = SendWr::new(n, SendOp::WriteImm(b.at(0), 1), Payload::Sges(&sges));
        a.qp.post_send(&[write]).unwrap();
    }
    fabric.advance_to(ns(6999));
    assert_eq!(b.done(), [10]);
    fabric.advance_to(ns(7000));
    assert_eq!(b.done(), [11]);
    for n in 0..2 {
        fabric.advance_to(ns(8000 + 1000 * n));
        let message = SendWr::new(n, SendOp::Send, Payload::Sges(&sges));
        a.qp.post_send(&[message]).unwrap();
    }
    fabric.advance_to(ns(78_000));
    assert_eq!(b.done(), [12]);
    // The second one waits for a receive, and retries.
    fabric.advance_to(ns(79_000));
    b.qp.post_recv(&[RecvWr { wr_id: 13, sges: &[] }]).unwrap();
    fabric.advance_to(ns(79_000) + RtrAttr::new(a.qp.endpoint()).min_rnr_timer);
    assert_eq!(b.done(), [13]);
}

/// Counts to its number, a microsecond each.
struct Counter {
    count: u32,
    most: u32,
}

impl Thread<Stuck> for Counter {
    fn step(&mut self, _: Duration) -> Result<Next, Stuck> {
        if self.count == self.most {
            return Ok(Next::Done);
        }
        self.count += 1;
        Ok(Next::Busy(ns(1000)))
    }
}

struct Waiter;

impl Thread<Stuck> for Waiter {
    fn step(&mut self, _: Duration) -> Result<Next, Stuck> {
        Ok(Next::Idle)
    }
}

#[test]
fn threads_share_the_clock_and_a_deadlock_is_found() {
    let fabric = Fabric::new(times(), Pace::ByCaller);
    let mut fast = Counter { count: 0, most: 5 };
    let mut slow = Counter { count: 0, most: 100 };
    run(&fabric, &mut [&mut slow, &mut fast, &mut Waiter]).unwrap();
    assert_eq!((fabric.now(), slow.count), (ns(5000), 6));
    let stuck = run(&fabric, &mut [&mut Waiter, &mut Waiter]).unwrap_err();
    assert_eq!(stuck, Stuck { at: ns(5000) });
}

#[test]
fn a_rate_limit_spreads_requests_in_virtual_time() {
    const MESSAGES: u64 = 1000;
    let fabric = Fabric::new(Times::default(), Pace::WhenPolled);
    let (mut a, b) = End::pair(&fabric);
    a.qp.set_rate(Some(RateLimit::new(8_000_000))).unwrap();
    for wr_id in 0..MESSAGES {
        let op = SendOp::Write(b.at(0));
        let sges = a.sge(4096);
        a.qp.post_send(&[SendWr::new(wr_id, op, Payload::Sges(&sges))]).unwrap();
        while a.done().is_empty() {}
    }
    // Sixteen messages are the burst; each other one waits for its bytes, at a byte a microsecond.
    let waited = Duration::from_micros((MESSAGES - 1 - 16) * 4096);
    assert_eq!(fabric.now(), waited + ns(1));
}
