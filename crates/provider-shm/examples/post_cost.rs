//! What a small post costs: a linked pair [WRITE of data, inline WRITE of one byte] with its
//! completion, as the status-byte mechanism posts it. One thread, the peer's memory in this
//! process; so no cache line travels. Prints nanoseconds for each pair.
#![allow(clippy::unwrap_used, reason = "an example may end with a panic")]
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{
    Access, Completion, Context, Cq, Mr, Payload, Pd, Provider, Qp, QpInit, RemoteAddr, RtrAttr,
    RtsAttr, SendOp, SendWr, Sge,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);
const BATCH: u32 = 100_000;

struct Side {
    _context: Arc<dyn Context>,
    _pd: Arc<dyn Pd>,
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
    qp: Box<dyn Qp>,
}

fn side(with_channel: bool) -> Side {
    let context = ShmProvider::new().open("shm0").unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4, with_channel.then(|| context.create_channel().unwrap())).unwrap();
    let qp = pd.create_qp(QpInit { max_inline_bytes: 8, strict: true, ..QpInit::rc(&cq, 2, 0) });
    Side { mr: pd.alloc_mr(1 << 20, ALL).unwrap(), qp: qp.unwrap(), cq, _pd: pd, _context: context }
}

fn main() {
    let (mut a, mut b) = (side(true), side(true));
    let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
    a.qp.connect(ALL, RtrAttr::new(eb), RtsAttr::default()).unwrap();
    b.qp.connect(ALL, RtrAttr::new(ea), RtsAttr::default()).unwrap();
    println!("bytes  pair_ns_p50  pair_ns_min");
    for bytes in [8, 64, 256, 1024, 4096, 65_536] {
        let mut runs: Vec<Duration> = (0..21).map(|_| run(&mut a, &b, bytes) / BATCH).collect();
        runs.sort();
        println!("{bytes:5}  {:11}  {:11}", runs[10].as_nanos(), runs[0].as_nanos());
    }
}

fn run(a: &mut Side, b: &Side, bytes: u32) -> Duration {
    let sges = [Sge { addr: a.mr.addr(), bytes, lkey: a.mr.lkey() }];
    let at = |offset| RemoteAddr { addr: b.mr.addr() + offset, rkey: b.mr.rkey() };
    let mut out = [Completion::EMPTY; 2];
    let start = Instant::now();
    for n in 0..BATCH {
        let status = [n as u8];
        a.qp.post_send(&[
            SendWr::new(1, SendOp::Write(at(0)), Payload::Sges(&sges)).unsignaled(),
            SendWr::new(2, SendOp::Write(at(1 << 19)), Payload::Inline(&status)),
        ])
        .unwrap();
        assert_eq!(a.cq.poll(&mut out), Ok(1));
    }
    start.elapsed()
}
