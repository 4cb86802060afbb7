//! What a short request waits for beside batches of long ones, over a hop of 1 Gbit/s between two routed namespaces.
use super::ends::{AgentProcess, Network, Pair, Work};
use super::row::{Place, What};
use super::seat::Found;
use crate::goal::{Goal, Limit};
use crate::hop::{Hop, Line};
use crate::stats::{decimals, percentile, tenths};
use anyhow::{Context as _, Result};
use catchment_perf::{Amount, Operation, Waiting};
use serde::Serialize;
use std::time::Duration;

/// Who is compared, in turn, and in which mode of the policy.
const RIVALS: [(What, Option<&str>); 3] =
    [(What::Raw, None), (What::Justitia, Some("justitia")), (What::Drum, Some("drum"))];
/// WRITEs that the neighbour has outstanding.
const BATCHES: [u32; 2] = [20, 100];
const BACKGROUND_BYTES: u64 = 64 << 10;
const BYTES: u64 = 32;
/// More than anybody has outstanding may wait: nothing is lost.
const LINE: Line = Line { bps: 1_000_000_000, queue_bytes: 16 << 20 };
/// Time for the neighbour to begin, and for it to go on until the other is done.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER_S: f64 = 1.0;

/// Medians of fresh processes.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    what: What,
    #[serde(flatten)]
    place: Place,
    background: String,
    shaped_bps: u64,
    ops_per_s: f64,
    bytes_per_s: f64,
    latency_ns_p50: f64,
    latency_ns_p80: f64,
    latency_ns_p99: f64,
    /// Of the neighbour.
    background_bytes_per_s: f64,
    runs: usize,
}

impl Row {
    fn new(what: What, batch: u32, found: &[(Found, Found)]) -> Result<Self> {
        let median = |values: Vec<f64>| percentile(&values, 0.5);
        let latency = |at: usize| {
            let all = found.iter().filter_map(|(short, _)| Some(short.latency_ns?[at]));
            tenths(median(all.collect()))
        };
        anyhow::ensure!(
            found.iter().all(|(short, _)| short.latency_ns.is_some()),
            "no request was done"
        );
        let ops_per_s = median(found.iter().map(|(short, _)| short.ops_per_s).collect());
        let long = median(found.iter().map(|(_, long)| long.ops_per_s).collect());
        Ok(Self {
            what,
            place: Place {
                provider: "roce",
                op: Some(Operation::Read),
                bytes: BYTES,
                apps: 2,
                batch: Some(1),
                outstanding: 1,
            },
            background: format!("WRITE of {BACKGROUND_BYTES} bytes, {batch} outstanding"),
            shaped_bps: LINE.bps,
            ops_per_s: ops_per_s.round(),
            bytes_per_s: (ops_per_s * BYTES as f64).round(),
            latency_ns_p50: latency(0),
            latency_ns_p80: latency(1),
            latency_ns_p99: latency(2),
            background_bytes_per_s: (long * BACKGROUND_BYTES as f64).round(),
            runs: found.len(),
        })
    }

    /// Returns it as a line for a person.
    pub(super) fn line(&self) -> String {
        format!(
            "{:<10} READ of {BYTES} bytes beside {}: p50 {:.0} us, p80 {:.0}, p99 {:.0}; the other {:.1} MB/s",
            format!("{:?}", self.what).to_lowercase(),
            self.background,
            self.latency_ns_p50 / 1e3,
            self.latency_ns_p80 / 1e3,
            self.latency_ns_p99 / 1e3,
            self.background_bytes_per_s / 1e6,
        )
    }
}

/// Measures both applications of one rival in fresh processes: the one with short requests, and its neighbour.
fn run(
    mode: Option<&str>,
    network: Network<'_>,
    batch: u32,
    seconds: f64,
) -> Result<(Found, Found)> {
    let start =
        |mode| AgentProcess::start_two_at(mode, &[1.0, 1.0], network, LINE.payload_bytes_per_s());
    let agents = mode.map(start).transpose()?;
    let short = Work {
        operation: Operation::Read,
        bytes: BYTES,
        outstanding: 1,
        warm_up: Amount::Seconds(seconds / 10.0),
        seconds,
        waiting: Waiting::Yield,
    };
    let long = Work {
        operation: Operation::Write,
        bytes: BACKGROUND_BYTES,
        outstanding: batch,
        warm_up: Amount::Iterations(1),
        seconds: BEFORE.as_secs_f64() + 1.1 * seconds + AFTER_S,
        waiting: Waiting::Sleep,
    };
    let long = Pair::start(agents.as_ref(), network, 1, &[long])?;
    // Nothing tells when it is at work.
    std::thread::sleep(BEFORE);
    let short = Pair::start(agents.as_ref(), network, 0, &[short])?.finish()?;
    let of = |found: Vec<Found>| found.first().copied().context("what it found");
    Ok((of(short)?, of(long.finish()?)?))
}

/// Measures all, run by run in turn; returns rows and what they say of the goals.
pub(super) fn measure(runs: usize, seconds: f64) -> Result<(Vec<Row>, Vec<Goal<Place>>)> {
    let star = LINE.join()?;
    let network = Network(Hop::of_star(&star));
    let mut found = BATCHES.map(|_| RIVALS.map(|_| Vec::new()));
    for _ in 0..runs {
        for (batch, found) in BATCHES.iter().zip(&mut found) {
            for ((what, mode), found) in RIVALS.iter().zip(found) {
                let one = run(*mode, network, *batch, seconds);
                found.push(one.with_context(|| format!("{what:?}, {batch}"))?);
            }
        }
    }
    let mut rows = Vec::new();
    for (batch, found) in BATCHES.iter().zip(&found) {
        for ((what, _), found) in RIVALS.iter().zip(found) {
            rows.push(Row::new(*what, *batch, found)?);
        }
    }
    let goals = goals(&rows);
    Ok((rows, goals))
}

/// What was to hold before it was measured. Rows come in the order of [`BATCHES`], then of [`RIVALS`].
fn goals(rows: &[Row]) -> Vec<Goal<Place>> {
    let [raw, justitia, drum, raw_100, justitia_100, drum_100] = rows else { return Vec::new() };
    let goal = |name, value, limit| Goal::new(name, drum.place, decimals(value, 4), limit);
    let p99 = |a: &Row, b: &Row| a.latency_ns_p99 / b.latency_ns_p99;
    let p80 = |a: &Row, b: &Row| a.latency_ns_p80 / b.latency_ns_p80;
    let moved = |a: &Row, b: &Row| a.background_bytes_per_s / b.background_bytes_per_s;
    vec![
        goal("RAW's p80 beside 100 outstanding by 20", p80(raw_100, raw), Limit::AtLeast(2.0)),
        goal("agent's p80 beside 100 outstanding by 20", p80(drum_100, drum), Limit::AtMost(1.3)),
        goal("agent's p99 by RAW's, beside 20", p99(drum, raw), Limit::AtMost(0.5)),
        goal("agent's p99 by RAW's, beside 100", p99(drum_100, raw_100), Limit::AtMost(0.5)),
        goal("agent's p99 by JUSTITIA's, beside 20", p99(drum, justitia), Limit::AtMost(1.0)),
        goal(
            "agent's p99 by JUSTITIA's, beside 100",
            p99(drum_100, justitia_100),
            Limit::AtMost(1.0),
        ),
        goal(
            "bytes of the neighbour under the agent by RAW's, 20",
            moved(drum, raw),
            Limit::AtLeast(1.0),
        ),
        goal(
            "bytes of the neighbour under the agent by RAW's, 100",
            moved(drum_100, raw_100),
            Limit::AtLeast(1.0),
        ),
        goal(
            "bytes of the neighbour under the agent by JUSTITIA's, 20",
            moved(drum, justitia),
            Limit::AtLeast(1.0),
        ),
        goal(
            "bytes of the neighbour under the agent by JUSTITIA's, 100",
            moved(drum_100, justitia_100),
            Limit::AtLeast(1.0),
        ),
    ]
}
