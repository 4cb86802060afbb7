//! `authenticate`: what authenticated packets cost.
//!
//! Processor time and goodput of long WRITEs, SENDs and READs between two devices of this process over
//! loopback, with and without authentication, in turn.
use crate::stats::{decimals, percentile};
use crate::{output, table};
use anyhow::Result;
use catchment_conformance::{Options as SideOptions, Side, connected, wait_one};
use catchment_perf::Meter;
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_verbs::{SendOp, VerbsError};
use serde::Serialize;

const MESSAGE_BYTES: usize = 1 << 20;

/// Measure what authenticated packets cost
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Messages of 1 MiB in each measurement
    #[arg(long, default_value_t = 1000)]
    messages: u32,
    /// Measurements of each row, in turn; their medians are shown
    #[arg(long, default_value_t = 7)]
    runs: u32,
}

#[derive(Debug, Serialize)]
struct Row {
    operation: &'static str,
    authenticated: bool,
    /// Processor time of both ends for a gigabyte.
    cpu_s_per_gb: f64,
    goodput_gbps: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut lines =
        vec![["", "authenticated", "CPU s/GB, both ends", "Gbit/s"].map(str::to_owned).to_vec()];
    for operation in ["WRITE", "SEND", "READ"] {
        let mut pairs = [pair(false)?, pair(true)?];
        let mut seen = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        for _ in 0..options.runs {
            for ((a, b), (cpu, rate)) in pairs.iter_mut().zip(&mut seen) {
                let meter = Meter::start();
                (0..options.messages).for_each(|_| exchange(operation, a, b));
                let (wall, spent) = meter.stop();
                let gigabytes = f64::from(options.messages) * MESSAGE_BYTES as f64 / 1e9;
                cpu.push(spent.as_secs_f64() / gigabytes);
                rate.push(8.0 * gigabytes / wall.as_secs_f64());
            }
        }
        for ((cpu, rate), authenticated) in seen.iter().zip([false, true]) {
            let row = Row {
                operation,
                authenticated,
                cpu_s_per_gb: decimals(percentile(cpu, 0.5), 2),
                goodput_gbps: decimals(percentile(rate, 0.5), 1),
            };
            if options.json {
                output::json(&row)?;
            }
            let authenticated = if authenticated { "yes" } else { "no" };
            let numbers = [row.cpu_s_per_gb, row.goodput_gbps].map(|number| number.to_string());
            lines.push([&[operation.to_owned(), authenticated.to_owned()], &numbers[..]].concat());
        }
    }
    if options.json { Ok(()) } else { output::line(&table::markdown(&lines)) }
}

fn pair(authenticate: bool) -> Result<(Side, Side), VerbsError> {
    let options = RoceOptions { port: 0, authenticate, ..RoceOptions::default() };
    let provider = RoceProvider::new(options);
    let (left, right) = (provider.open_device("127.0.0.1")?, provider.open_device("127.0.0.1")?);
    let options = SideOptions { bytes: MESSAGE_BYTES, ..SideOptions::default() };
    Ok(connected((left, &options), (right, &options)))
}

fn exchange(operation: &str, a: &mut Side, b: &mut Side) {
    let sge = [a.sge(0, MESSAGE_BYTES)];
    match operation {
        "SEND" => {
            b.post_recv(1, &[b.sge(0, MESSAGE_BYTES)]);
            a.run_ok(SendOp::Send, &sge);
            wait_one(&*b.recv_cq);
        }
        "READ" => drop(a.run_ok(SendOp::Read(b.remote(0)), &sge)),
        _ => drop(a.run_ok(SendOp::Write(b.remote(0)), &sge)),
    }
}
