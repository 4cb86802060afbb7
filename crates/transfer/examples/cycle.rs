//! Quick numbers of the mechanism over shared memory: `cycle [mode] [blocks] [bytes] [count]`.
//!
//! Prints nanoseconds per block with looking for free slots only when none is known, and ahead;
//! then the one-way latency of a 64-byte payload beside that of one bare cache line.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a tool for measuring by hand"
)]
#[path = "../tests/common/mod.rs"]
mod common;

use catchment_transfer::*;
use common::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Lets a thread that is spawned next go where it likes, until it has pinned itself.
fn unpin() -> Barrier {
    let mut set = rustix::thread::CpuSet::new();
    for core in 0..2 {
        set.set(core);
    }
    let _ = rustix::thread::sched_setaffinity(None, &set);
    Barrier::new(2)
}

#[repr(align(128))]
struct Line(AtomicU64);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Half of a round trip of one cache line between two cores.
fn hand_over_ns(rounds: u64) -> f64 {
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let pinned = unpin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            pinned.wait();
            for round in 1..=rounds {
                while ping.0.load(Ordering::Acquire) < round {
                    std::hint::spin_loop();
                }
                pong.0.store(round, Ordering::Release);
            }
        });
        pinned.wait();
        pin(0);
        let start = Instant::now();
        for round in 1..=rounds {
            ping.0.store(round, Ordering::Release);
            while pong.0.load(Ordering::Acquire) < round {
                std::hint::spin_loop();
            }
        }
        start.elapsed().as_nanos() as f64 / rounds as f64 / 2.0
    })
}

fn send(sender: &Sender, payload: &[u8], number: u64) {
    let bytes = payload.len() as u32;
    let mut block = loop {
        match sender.reserve(0, bytes) {
            Ok(block) => break block,
            Err(ReserveError::WouldBlock) => std::hint::spin_loop(),
            Err(error) => panic!("{error}"),
        }
    };
    block.write_at(0, payload).unwrap();
    block.commit(&whole(number, bytes), false).unwrap();
}

fn take(receiver: &Receiver, waiter: &mut Waiter) -> ReceivedBlock {
    loop {
        let block = if waiter.wants_complete_poll() {
            receiver.poll()
        } else {
            receiver.poll_next()
        };
        match block.unwrap() {
            Some(block) => {
                waiter.found();
                return block;
            }
            None => {
                waiter.empty();
                std::hint::spin_loop();
            }
        }
    }
}

fn throughput(
    mode: Mode,
    blocks: u32,
    bytes: u32,
    count: u64,
    refill: Option<Refill>,
) -> (f64, f64) {
    let layout = RingLayout::new(blocks, RingLayout::block_bytes_for(bytes).unwrap()).unwrap();
    let options = SenderOptions {
        refill,
        ..SenderOptions::default()
    };
    let Pair {
        sender, receiver, ..
    } = &pair_with(mode, layout, options);
    let payload = vec![1; bytes as usize];
    let pinned = unpin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            pinned.wait();
            let mut waiter = Waiter::new(WaitPolicy::Spin, 2);
            let mut byte = [0];
            for _ in 0..count {
                let block = take(receiver, &mut waiter);
                block
                    .payload()
                    .read_at(bytes as usize - 1, &mut byte)
                    .unwrap();
            }
        });
        pinned.wait();
        pin(0);
        let start = Instant::now();
        for number in 0..count {
            send(sender, &payload, number);
        }
        let ns = start.elapsed().as_nanos() as f64 / count as f64;
        (ns, sender.stats().status_reads as f64 / count as f64)
    })
}

/// Half of a round trip of a 64-byte payload through two rings.
fn latency_ns(mode: Mode, rounds: u64) -> f64 {
    let (there, back) = (pair(mode, 16, 64), pair(mode, 16, 64));
    let (sender, receiver) = (&there.sender, &back.receiver);
    let (their_sender, their_receiver) = (&back.sender, &there.receiver);
    let pinned = unpin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            pinned.wait();
            let mut waiter = Waiter::new(WaitPolicy::Spin, 2);
            let mut seen = [0; 64];
            for round in 0..rounds {
                let block = take(their_receiver, &mut waiter);
                block.payload().read_at(0, &mut seen).unwrap();
                send(their_sender, &seen, round);
                drop(block);
            }
        });
        pinned.wait();
        pin(0);
        let mut waiter = Waiter::new(WaitPolicy::Spin, 2);
        let mut seen = [0; 64];
        let start = Instant::now();
        let mut last = None;
        for round in 0..rounds {
            send(sender, &seen, round);
            drop(last.take());
            let block = take(receiver, &mut waiter);
            block.payload().read_at(0, &mut seen).unwrap();
            last = Some(block);
        }
        start.elapsed().as_nanos() as f64 / rounds as f64 / 2.0
    })
}

/// One thread alone, everything in its cache: a block there and back, and its two halves.
fn alone_ns(mode: Mode, count: u64) -> [f64; 2] {
    const BATCH: u64 = 256;
    let Pair {
        sender, receiver, ..
    } = &pair(mode, BATCH as u32, 64);
    let mut ns = [0.0; 2];
    for _ in 0..count / BATCH {
        let start = Instant::now();
        (0..BATCH).for_each(|number| send(sender, &[7; 64], number));
        ns[0] += start.elapsed().as_nanos() as f64;
        let start = Instant::now();
        while let Some(block) = receiver.poll_next().unwrap() {
            drop(block);
        }
        ns[1] += start.elapsed().as_nanos() as f64;
    }
    ns.map(|total| total / count as f64)
}

/// A complete look that finds nothing, for each 64 blocks.
fn scan_ns(blocks: u32) -> f64 {
    let receiver = &pair(Mode::InPlace, blocks, 64).receiver;
    let looks = 10_000;
    let start = Instant::now();
    (0..looks).for_each(|_| assert!(receiver.poll().unwrap().is_none()));
    start.elapsed().as_nanos() as f64 / f64::from(looks) / f64::from(blocks.div_ceil(64))
}

fn context() -> std::sync::Arc<dyn catchment_verbs::Context> {
    use catchment_verbs::Provider;
    let provider = catchment_provider_shm::ShmProvider::new();
    provider.open("shm0").expect("shared memory works")
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: u64| args.get(i).map_or(default, |a| a.parse().unwrap());
    let mode = if args.get(1).is_some_and(|a| a == "copy") {
        COPY
    } else {
        Mode::InPlace
    };
    let (blocks, bytes) = (number(2, 3) as u32, number(3, 256) as u32);
    let count = number(4, 50_000);
    let mut rows = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..9 {
        let when_empty = throughput(mode, blocks, bytes, count, Some(Refill::WhenEmpty));
        let ahead = throughput(mode, blocks, bytes, count, None);
        rows[0].push(when_empty.0);
        rows[1].push(ahead.0);
        rows[2].push(hand_over_ns(20_000));
        rows[3].push(latency_ns(mode, 20_000));
        println!(
            "looks per block: when empty {:.3}, ahead {:.3}",
            when_empty.1, ahead.1
        );
    }
    let best = |row: &Vec<f64>| row.iter().copied().fold(f64::INFINITY, f64::min);
    let show = |name: &str, row: &Vec<f64>| {
        println!(
            "{name}: median {:.0} ns, best {:.0} ns",
            median(row.clone()),
            best(row)
        );
    };
    println!("{mode:?}, {blocks} blocks of {bytes} bytes");
    show("block, looking when empty", &rows[0]);
    show("block, looking ahead", &rows[1]);
    show("cache line hand-over", &rows[2]);
    show("64-byte payload, one way", &rows[3]);
    let [post, take] = alone_ns(mode, 100 * 256);
    println!("one thread alone: claim and commit {post:.0} ns, take and release {take:.0} ns");
    for blocks in [64, 1024, 16_384] {
        let ns = scan_ns(blocks);
        println!("empty look, {blocks} blocks: {ns:.1} ns for each 64");
    }
}
