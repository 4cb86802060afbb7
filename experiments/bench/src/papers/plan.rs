//! How long a run will take, as far as its scenarios say it.
use super::bench::Bench;
use super::scenario::{Effort, Measure, Scenario, Workload};
use super::singles::HOLD;
use super::virtual_stream;
use crate::external::STREAM_SECONDS;
use crate::mechanism::{Mechanism, Provider};
use anyhow::{Context as _, Result};
use std::io::Write as _;

/// A pair of processes starts, connects, and checks blocks byte by byte.
const START_S: f64 = 0.1;
/// Batches of a kind that warm up, about.
const WARM_UP: f64 = 3.0;
/// A block by itself: a pause, and the way there.
const SINGLE_S: f64 = 40e-6;
/// Bytes a second of large blocks, about.
const BYTES_PER_S: f64 = 4e9;
/// A message whose receiver sleeps, through the threads of both sides.
const WAKE_S: f64 = 60e-6;
/// Bytes a second of large messages through the kernel, about.
const SLOW_BYTES_PER_S: f64 = 1.5e9;
/// A block in virtual time, or one of those that are counted.
const STEP_S: f64 = 0.5e-6;
/// A request of a connection on a modelled NIC.
const REQUEST_S: f64 = 10e-6;
/// A second of events through the controller, and its packets.
const GRANTS_S: f64 = 1e-3;
const PACKETS_S: f64 = 2.0;
/// Loads that are tried until a knee is found.
const TRIED: f64 = 9.0;
/// All rows of the solver, quick and full, on two processors: `solve` takes 9 minutes, and each of the 364 rows of `loss` with
/// 1,000 hosts some 12 s of a processor.
const SOLVER_S: [f64; 2] = [90.0, 3000.0];
/// Processes that begin together wait for the moment that they agreed on.
const TOGETHER_S: f64 = 3.0;

pub(super) fn say(bench: &Bench, scenarios: &[Scenario]) -> Result<()> {
    let mut out = std::io::stderr().lock();
    let mut all = 0.0;
    for scenario in scenarios {
        let seconds = seconds(bench, scenario);
        all += seconds;
        writeln!(out, "{:<8} {:>10}  {}", scenario.id, time(seconds), scenario.title)
            .context("standard error")?;
    }
    let what = "all of them, about; what is done is written after each";
    writeln!(out, "{:<8} {:>10}  {what}", "", time(all)).context("standard error")
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

fn seconds(bench: &Bench, scenario: &Scenario) -> f64 {
    let parts = scenario.measure.iter().flat_map(|part| {
        let wanted = part.providers.iter().filter(|p| bench.wants_provider(**p));
        wanted.map(move |provider| (part, *provider))
    });
    let cells = parts.map(|(part, provider)| {
        let workload = part.workload.unwrap_or(scenario.workload);
        if workload == Workload::Solver {
            // One run of its program has the rows of all cells.
            return SOLVER_S[usize::from(!bench.quick())];
        }
        let effort = part.effort(bench.quick());
        let cells = part.cells(bench.quick()).into_iter();
        let one = |(mechanism, bytes, blocks)| {
            cell(workload, provider, part, effort, (mechanism, bytes, blocks))
        };
        cells.map(one).sum::<f64>()
    });
    cells.sum()
}

fn cell(
    workload: Workload,
    provider: Provider,
    part: &Measure,
    effort: &Effort,
    (mechanism, bytes, blocks): (Mechanism, usize, usize),
) -> f64 {
    let batches = effort.repetitions as f64 + 1.0;
    let single_s = SINGLE_S + bytes as f64 / BYTES_PER_S;
    let count = effort.count as f64;
    let run_s = match (workload, provider) {
        (Workload::Table | Workload::Solver, _) => return 0.0,
        (Workload::Connections | Workload::Background | Workload::Store, _) => {
            return part.streams.len() as f64 * count * REQUEST_S;
        }
        (Workload::Grants, _) => {
            let second_s = if part.packets { PACKETS_S } else { GRANTS_S };
            let loads = if part.loads.is_empty() { TRIED } else { part.loads.len() as f64 };
            let seconds = effort.milliseconds as f64 / 1e3;
            return loads * effort.repetitions as f64 * seconds * second_s / 2.0;
        }
        (Workload::Stream, Provider::Sim) => return virtual_stream::count(bytes) as f64 * STEP_S,
        (Workload::Duplex, _) => {
            // Three ways of a message, and a stream.
            3.0 * count * (WAKE_S + bytes as f64 / SLOW_BYTES_PER_S)
        }
        (Workload::Interactions | Workload::Queues, _) => return count * STEP_S,
        (Workload::Cameras, _) => {
            let cells = part.streams.len().max(1) as f64;
            return cells * (TOGETHER_S + effort.milliseconds as f64 / 1e3);
        }
        (Workload::ReleaseOrder, Provider::Sim) => {
            let cells = 4.0 * part.workers.len() as f64;
            return cells * effort.repetitions as f64 * count * 2.0 * STEP_S;
        }
        (Workload::ReleaseOrder, Provider::Shm | Provider::Roce | Provider::Rxe) => {
            let block_us = part.constants.map_or(0.0, |constants| constants.t_write_us);
            let cells = 4.0 * part.workers.len() as f64;
            cells * (START_S + batches * count * 1.6 * block_us / 1e6)
        }
        (Workload::Hold, _) => batches * 2.5 * HOLD.end as f64 / 1e3,
        (Workload::Sync | Workload::Look | Workload::OneWay, _) => {
            batches * (count + blocks as f64) * single_s
        }
        (Workload::Stream, Provider::Shm | Provider::Roce | Provider::Rxe)
            if mechanism.is_program() =>
        {
            f64::from(STREAM_SECONDS)
        }
        (Workload::Stream, Provider::Shm | Provider::Roce | Provider::Rxe) => {
            2.0 * (effort.repetitions as f64 + WARM_UP) * effort.milliseconds as f64 / 1e3
        }
    };
    effort.restarts as f64 * (START_S + run_s)
}
