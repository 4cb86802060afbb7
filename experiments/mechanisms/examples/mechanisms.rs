//! Quick numbers of all mechanisms over shared memory: `mechanisms [blocks] [bytes] [count]`.
//!
//! Prints nanoseconds a block, one sending and one receiving thread on a core each, both spinning.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a tool for measuring by hand"
)]
use catchment_mechanisms::window::fair::*;
use catchment_mechanisms::*;
use catchment_provider_shm::ShmProvider;
use catchment_transfer::{Refill, WaitPolicy, Waiter};
use catchment_verbs::Provider;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn pair<M: Mechanism>(mechanism: &M) -> (M::Sender, M::Receiver) {
    let open = |needs: &EndNeeds| {
        let context = ShmProvider::new().open("shm0").unwrap();
        let pd = context.alloc_pd().unwrap();
        Port::open(&*context, &*pd, needs).unwrap()
    };
    let mut source = open(&mechanism.sender_needs().unwrap());
    let mut collector = open(&mechanism.receiver_needs().unwrap());
    let (out, back) = (source.offer(), collector.offer());
    source.connect(&back).unwrap();
    collector.connect(&out).unwrap();
    let receiver = mechanism.receiver(collector, &out).unwrap();
    (mechanism.sender(source, &back).unwrap(), receiver)
}

fn ns_per_block<M: Mechanism>(mechanism: &M, count: u64) -> f64 {
    let (mut sender, mut receiver) = pair(mechanism);
    let payload = vec![1; mechanism.shape().payload_bytes as usize];
    let pinned = Barrier::new(2);
    let (payload, pinned) = (&payload, &pinned);
    std::thread::scope(|scope| {
        let taker = scope.spawn(move || {
            pin(1);
            let mut waiter = Waiter::new(WaitPolicy::Spin, 2);
            pinned.wait();
            for _ in 0..count {
                let block = loop {
                    let block = match waiter.wants_complete_poll() {
                        true => receiver.take(),
                        false => receiver.take_next(),
                    };
                    if let Some(block) = block.unwrap() {
                        waiter.found();
                        break block;
                    }
                    waiter.empty();
                    std::hint::spin_loop();
                };
                let last = payload.len() - 1;
                let byte = block.payload().load_u8(last, Ordering::Relaxed);
                std::hint::black_box(byte.unwrap());
            }
            // The end lives until the sender has stopped.
            (Instant::now(), receiver)
        });
        pin(0);
        pinned.wait();
        let start = Instant::now();
        for packet in 0..count {
            let claim = loop {
                match sender.claim(0, payload.len() as u32) {
                    Ok(claim) => break claim,
                    Err(ClaimError::WouldBlock) => std::hint::spin_loop(),
                    Err(error) => panic!("{error}"),
                }
            };
            sender.memory(&claim).write_at(0, payload).unwrap();
            sender.commit(claim, packet).unwrap();
        }
        while !taker.is_finished() {
            sender.progress().unwrap();
        }
        let (end, _receiver) = taker.join().unwrap();
        (end - start).as_nanos() as f64 / count as f64
    })
}

fn show<M: Mechanism>(name: &str, mechanism: &M, count: u64) {
    let mut all: Vec<f64> = (0..9).map(|_| ns_per_block(mechanism, count)).collect();
    all.sort_by(f64::total_cmp);
    println!("{name:32} median {:7.0} best {:7.0} ns", all[4], all[0]);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: u64| args.get(i).map_or(default, |a| a.parse().unwrap());
    let shape = Shape {
        blocks: number(1, 3) as u32,
        payload_bytes: number(2, 256) as u32,
    };
    let count = number(3, 50_000);
    println!("{} blocks of {} bytes", shape.blocks, shape.payload_bytes);
    for way in [Way::InPlace, Way::Copy] {
        let status_byte = StatusByte::new(shape, way);
        show(status_byte.name(), &status_byte, count);
        if way == Way::Copy {
            let when_empty = status_byte.with_refill(Refill::WhenEmpty);
            show("status-byte, read when empty", &when_empty, count);
        }
    }
    for form in [
        Form::TailInPlace,
        Form::Tail,
        Form::WriteImm,
        Form::Selective,
    ] {
        let fair = SwFair::new(shape, form);
        show(fair.name(), &fair, count);
    }
}
