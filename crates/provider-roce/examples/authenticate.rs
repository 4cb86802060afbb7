//! What authenticated packets cost: processor time and goodput of long WRITEs, SENDs and READs between two
//! devices of this process over loopback, with and without, in turn.
//!
//! ```text
//! cargo run --release --example authenticate -p catchment-provider-roce
//! ```
use catchment_conformance::{Options, Side, connected, wait_one};
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_verbs::{SendOp, VerbsError};
use std::time::{Duration, Instant};

const MESSAGE_BYTES: usize = 1 << 20;
const MESSAGES: usize = 1000;
const ROUNDS: usize = 7;

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn pair(authenticate: bool) -> Result<(Side, Side), VerbsError> {
    let options = RoceOptions { port: 0, authenticate, ..RoceOptions::default() };
    let provider = RoceProvider::new(options);
    let (left, right) = (provider.open_device("127.0.0.1")?, provider.open_device("127.0.0.1")?);
    let options = Options { bytes: MESSAGE_BYTES, ..Options::default() };
    Ok(connected((left, &options), (right, &options)))
}

fn exchange(what: &str, a: &mut Side, b: &mut Side) {
    let sge = [a.sge(0, MESSAGE_BYTES)];
    match what {
        "SEND" => {
            b.post_recv(1, &[b.sge(0, MESSAGE_BYTES)]);
            a.run_ok(SendOp::Send, &sge);
            wait_one(&*b.recv_cq);
        }
        "READ" => drop(a.run_ok(SendOp::Read(b.remote(0)), &sge)),
        _ => drop(a.run_ok(SendOp::Write(b.remote(0)), &sge)),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), VerbsError> {
    println!("| | authenticated | CPU s / GB, both ends | Gbit/s |\n|---|---|---|---|");
    for what in ["WRITE", "SEND", "READ"] {
        let mut pairs = [pair(false)?, pair(true)?];
        let mut seen = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        for _ in 0..ROUNDS {
            for ((a, b), (cpu, rate)) in pairs.iter_mut().zip(&mut seen) {
                let (begun, cpu_begun) = (Instant::now(), cpu_time());
                (0..MESSAGES).for_each(|_| exchange(what, a, b));
                let gigabytes = (MESSAGES * MESSAGE_BYTES) as f64 / 1e9;
                cpu.push((cpu_time() - cpu_begun).as_secs_f64() / gigabytes);
                rate.push(8.0 * gigabytes / begun.elapsed().as_secs_f64());
            }
        }
        for ((cpu, rate), authenticated) in seen.into_iter().zip(["no", "yes"]) {
            println!("| {what} | {authenticated} | {:.2} | {:.1} |", median(cpu), median(rate));
        }
    }
    Ok(())
}
