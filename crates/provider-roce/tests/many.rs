//! Many queue pairs on one device. Alone in its program, because it measures the processor time of
//! the process.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use catchment_provider_roce::RoceContext;
use catchment_verbs::{
    Access, Context, Endpoint, Payload, Pd, Qp, QpInit, RtrAttr, RtsAttr, SendOp, SendWr,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MANY: usize = 1000;

fn many(context: &Arc<RoceContext>) -> (Arc<dyn Pd>, Vec<Box<dyn Qp>>) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(2 * MANY as u32, None).unwrap();
    let init = QpInit { max_inline_bytes: 16, strict: true, ..QpInit::rc(&cq, 64, 16) };
    (pd.clone(), (0..MANY).map(|_| pd.create_qp(init.clone()).unwrap()).collect())
}

fn raise(qp: &mut Box<dyn Qp>, peer: Endpoint) {
    qp.connect(Access::REMOTE, RtrAttr::new(peer), RtsAttr::default()).unwrap();
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// 1,000 queue pairs on one device: small, each works, and idle ones cost nothing.
#[test]
fn a_thousand_queue_pairs_on_one_device() {
    let [left, right] = common::open_two(["127.0.75.1", "127.0.75.2"], common::any_port());
    let start = Instant::now();
    let (_left_pd, mut sources) = many(&left);
    let (right_pd, mut sinks) = many(&right);
    for (a, b) in sources.iter_mut().zip(&mut sinks) {
        let (ea, eb) = (a.endpoint(), b.endpoint());
        raise(a, eb);
        raise(b, ea);
    }
    let set_up = start.elapsed();
    println!("{MANY} connected queue pairs: {set_up:?}");
    let counters = right.counters();
    let bytes_each = counters.queue_pair_bytes / counters.queue_pairs;
    println!("memory of an idle queue pair: {bytes_each} bytes");
    assert_eq!(counters.queue_pairs, MANY as u64);
    assert!(bytes_each < 16 << 10, "{bytes_each}");

    let memory = right_pd.alloc_mr(8 * MANY, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    for (n, qp) in sources.iter_mut().enumerate() {
        let remote =
            catchment_verbs::RemoteAddr { addr: memory.addr() + 8 * n as u64, rkey: memory.rkey() };
        let value = (n as u64 + 1).to_ne_bytes();
        let wr = SendWr::new(n as u64, SendOp::Write(remote), Payload::Inline(&value));
        qp.post_send(&[wr]).unwrap();
    }
    let whole = memory.region().whole();
    catchment_conformance::eventually("all writes", || {
        (0..MANY).all(|n| {
            whole.load_u64(8 * n, std::sync::atomic::Ordering::Acquire).unwrap() == n as u64 + 1
        })
    });
    let after = right.counters();
    println!("memory of one that was used: {} bytes", after.queue_pair_bytes / after.queue_pairs);
    assert!(after.queue_pair_bytes / after.queue_pairs < 16 << 10);
    // Until acknowledgements and timers are over; no event reports that.
    std::thread::sleep(Duration::from_millis(300));
    let before = cpu_time();
    // The time over which idle queue pairs must not cost anything.
    std::thread::sleep(Duration::from_millis(300));
    let used = cpu_time() - before;
    println!("CPU of {MANY} idle queue pairs in 300 ms: {used:?}");
    assert!(used < Duration::from_millis(60), "{used:?}");
}
