//! Goodput of 1 MiB WRITEs and latency of 64-byte ones between two devices of this process, to see
//! quickly whether a change made something slower. `cargo xtask bench roce` measures properly.
//!
//! `cargo run --release -p catchment-provider-roce --example goodput [inline] [ADDRESS]`
#![allow(clippy::unwrap_used, reason = "a measurement may panic")]
use catchment_provider_roce::{RoceContext, RoceOptions, RoceProvider};
use catchment_verbs::{
    Access, Completion, Context, Cq, Mr, Payload, Pd, Qp, QpInit, QpTransition, RemoteAddr,
    RtrAttr, RtsAttr, SendOp, SendWr, Service, Sge,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const BYTES: usize = 64 << 20;
const MESSAGE: usize = 1 << 20;

struct End {
    context: Arc<RoceContext>,
    qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    mr: Arc<dyn Mr>,
    _pd: Arc<dyn Pd>,
}

fn end(provider: &RoceProvider, device: &str) -> End {
    let context = provider.open_device(device).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64, None).unwrap();
    let init = QpInit {
        service: Service::Rc,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        max_send_wr: 32,
        max_recv_wr: 1,
        max_sge: 1,
        max_inline_bytes: 64,
        strict: true,
    };
    End {
        qp: pd.create_qp(init).unwrap(),
        mr: pd.alloc_mr(BYTES, Access::LOCAL_WRITE | Access::REMOTE).unwrap(),
        context,
        cq,
        _pd: pd,
    }
}

fn raise(end: &mut End, peer: catchment_verbs::Endpoint) {
    let access = Access::REMOTE;
    for step in [
        QpTransition::ToInit { access },
        QpTransition::ToRtr(RtrAttr::new(peer)),
        QpTransition::ToRts(RtsAttr::default()),
    ] {
        end.qp.modify(step).unwrap();
    }
}

impl End {
    fn poll(&self) -> usize {
        let mut out = [Completion::EMPTY; 16];
        let n = self.cq.poll(&mut out).unwrap();
        assert!(out[..n].iter().all(|done| done.result.is_ok()), "{out:?}");
        n
    }

    fn post(&mut self, from: usize, bytes: usize, to: RemoteAddr) {
        let sge =
            [Sge { addr: self.mr.addr() + from as u64, bytes: bytes as u32, lkey: self.mr.lkey() }];
        let wr = SendWr::new(0, SendOp::Write(to), Payload::Sges(&sge));
        self.qp.post_send(&[wr]).unwrap();
    }

    fn at(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.mr.addr() + offset as u64, rkey: self.mr.rkey() }
    }
}

fn goodput(a: &mut End, b: &End, time: Duration) -> f64 {
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while start.elapsed() < time || done < posted {
        if posted - done < 16 && start.elapsed() < time {
            let offset = posted % (BYTES / MESSAGE) * MESSAGE;
            a.post(offset, MESSAGE, b.at(offset));
            posted += 1;
        }
        let polled = a.poll();
        done += polled;
        if polled == 0 && posted - done == 16 {
            std::thread::yield_now();
        }
    }
    (done * MESSAGE) as f64 / start.elapsed().as_secs_f64()
}

/// Half the time from a WRITE to the WRITE that answers it, in microseconds: median and 99 %.
fn latency(a: &mut End, b: &mut End) -> (f64, f64) {
    const ROUNDS: u64 = 20_000;
    let wait = |mr: &Arc<dyn Mr>, n: u64, cq: &End| {
        while mr.region().whole().load_u64(56, Ordering::Acquire).unwrap() != n {
            // Also the engine's work, where it is done inline; else its thread needs the core.
            cq.poll();
            std::thread::yield_now();
        }
    };
    let (to_a, to_b) = (a.at(0), b.at(0));
    let mut times = Vec::with_capacity(ROUNDS as usize);
    let write = |end: &mut End, n: u64, to| {
        let mut data = [0; 64];
        data[56..].copy_from_slice(&n.to_ne_bytes());
        let wr = SendWr::new(0, SendOp::Write(to), Payload::Inline(&data));
        while end.qp.post_send(&[wr]).is_err() {
            end.poll();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=ROUNDS {
                wait(&b.mr.clone(), n, b);
                write(b, n, to_a);
            }
        });
        for n in 1..=ROUNDS {
            let start = Instant::now();
            write(a, n, to_b);
            wait(&a.mr.clone(), n, a);
            times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
    });
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    (at(0.5), at(0.99))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let device = words.iter().find(|word| *word != "inline");
    let device = device.map_or("127.0.0.1", String::as_str);
    let provider = RoceProvider::new(RoceOptions {
        port: 0,
        inline_polling: words.iter().any(|word| word == "inline"),
        ..RoceOptions::default()
    });
    let (mut a, mut b) = (end(&provider, device), end(&provider, device));
    let (ea, eb) = (a.qp.endpoint(), b.qp.endpoint());
    raise(&mut a, eb);
    raise(&mut b, ea);
    goodput(&mut a, &b, Duration::from_millis(300));
    for _ in 0..3 {
        let rate = goodput(&mut a, &b, Duration::from_secs(1));
        println!("WRITE 1 MiB: {:.2} Gbit/s", rate * 8.0 / 1e9);
    }
    a.mr.region().whole().fill(0).unwrap();
    b.mr.region().whole().fill(0).unwrap();
    let (p50, p99) = latency(&mut a, &mut b);
    println!("WRITE 64 B, one way: p50 {p50:.1} us, p99 {p99:.1} us");
    println!("{:#?}", a.context.counters());
    println!("{:#?}", b.context.counters());
}
