//! What a request waits for beside batches of others: a short one over a hop of 1 Gbit/s between two routed namespaces and
//! over shared memory, a flow of 16 MiB over the hop.
use super::ends::{AgentProcess, Network, Pair, Work};
use super::row::{Place, Row as Measured, What};
use super::seat::Found;
use crate::goal::{Goal, Limit};
use crate::hop::{Hop, Line};
use crate::stats::{decimals, percentile};
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
/// More than anybody has outstanding may wait: nothing is lost.
const LINE: Line = Line { bps: 1_000_000_000, queue_bytes: 16 << 20 };
/// Time for the neighbour to begin, and for it to go on until the other is done.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER_S: f64 = 1.0;

/// Requests that are timed, one at a time.
#[derive(Debug, Clone, Copy)]
struct Timed {
    operation: Operation,
    bytes: u64,
    /// At least, whatever the options say.
    seconds: f64,
}

const SHORT: Timed = Timed { operation: Operation::Read, bytes: 32, seconds: 0.0 };
/// Figure 9 of the DRUM paper has 1 GB.
const FLOW: Timed = Timed { operation: Operation::Write, bytes: 16 << 20, seconds: 1.0 };

/// What was found in one turn: of the requests that are timed, and of the neighbour.
type Turn = (Found, Found);

/// Medians of fresh processes.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    timed: Measured,
    /// Nothing over shared memory.
    shaped_bps: Option<u64>,
    /// Of the neighbour.
    background_bytes_per_s: f64,
}

impl Row {
    /// Returns the row of one who is compared; `raw` is what RAW did in the same turns.
    fn new(
        what: What,
        cell: &Cell<'_>,
        batch: u32,
        (found, raw): (&[Turn], &[Turn]),
    ) -> Result<Self> {
        let Timed { operation, bytes, .. } = cell.timed;
        let place = Place {
            provider: cell.network.provider(),
            op: Some(operation),
            bytes,
            apps: 2,
            batch: Some(1),
            outstanding: 1,
        };
        let shorts = |all: &[Turn]| all.iter().map(|(short, _)| *short).collect::<Vec<_>>();
        let mut timed = Measured::measured(what, place, &shorts(found), &shorts(raw));
        timed.background = Some(format!("WRITE of {BACKGROUND_BYTES} bytes, {batch} outstanding"));
        anyhow::ensure!(timed.latency_ns_p50.is_some(), "no request was done");
        let long: Vec<f64> = found.iter().map(|(_, long)| long.ops_per_s).collect();
        Ok(Self {
            timed,
            shaped_bps: cell.network.0.map(|_| LINE.bps),
            background_bytes_per_s: (percentile(&long, 0.5) * BACKGROUND_BYTES as f64).round(),
        })
    }

    /// Returns the median of its latency, its 80th and its 99th percentile.
    fn latency_ns(&self) -> [f64; 3] {
        let Measured { latency_ns_p50, latency_ns_p80, latency_ns_p99, .. } = self.timed;
        [latency_ns_p50, latency_ns_p80, latency_ns_p99].map(|ns| ns.unwrap_or(f64::NAN))
    }

    /// Returns it as a line for a person.
    pub(super) fn line(&self) -> String {
        let Measured { what, background, .. } = &self.timed;
        let [p50, p80, p99] = self.latency_ns().map(|ns| ns / 1e3);
        format!(
            "{:<10} {}: beside {}: p50 {p50:.0} us, p80 {p80:.0}, p99 {p99:.0}; the other {:.1} MB/s",
            format!("{what:?}").to_lowercase(),
            self.timed.place(),
            background.as_deref().unwrap_or_default(),
            self.background_bytes_per_s / 1e6,
        )
    }
}

/// One kind of request on one network, beside batches of each size.
struct Cell<'a> {
    network: Network<'a>,
    timed: Timed,
    /// Places in [`RIVALS`].
    rivals: &'static [usize],
    /// Run by run, of each batch and rival.
    found: [Vec<Vec<Turn>>; BATCHES.len()],
}

impl<'a> Cell<'a> {
    fn new(network: Network<'a>, timed: Timed, rivals: &'static [usize]) -> Self {
        let found = BATCHES.map(|_| vec![Vec::new(); rivals.len()]);
        Self { network, timed, rivals, found }
    }

    /// Measures all once.
    fn run(&mut self, seconds: f64) -> Result<()> {
        for (batch, found) in BATCHES.iter().zip(&mut self.found) {
            for (who, found) in self.rivals.iter().zip(found) {
                let (what, mode) = RIVALS[*who];
                let one = run(mode, (self.network, self.timed), *batch, seconds);
                found.push(one.with_context(|| format!("{what:?}, {batch}"))?);
            }
        }
        Ok(())
    }

    /// Returns rows in the order of [`BATCHES`], then of the rivals.
    fn rows(&self) -> Result<Vec<Row>> {
        let cells = BATCHES.iter().zip(&self.found).flat_map(|(batch, all)| {
            self.rivals.iter().zip(all).map(move |(who, found)| (*batch, *who, (found, all)))
        });
        // RAW is the first of all rivals.
        let row = |(batch, who, (found, all)): (u32, usize, (&Vec<_>, &Vec<Vec<_>>))| {
            Row::new(RIVALS[who].0, self, batch, (found, &all[0]))
        };
        cells.map(row).collect()
    }
}

/// Measures both applications of one rival in fresh processes: the one whose requests are timed, and its neighbour.
fn run(
    mode: Option<&str>,
    (network, timed): (Network<'_>, Timed),
    batch: u32,
    seconds: f64,
) -> Result<(Found, Found)> {
    let start = |mode| match network.0 {
        // Of one host, as it is without a word in its policy.
        None if mode == "drum" => AgentProcess::start(mode, &[1.0, 1.0], network),
        None => AgentProcess::start_two(mode, &[1.0, 1.0], network),
        Some(_) => {
            AgentProcess::start_two_at(mode, &[1.0, 1.0], network, LINE.payload_bytes_per_s())
        }
    };
    let agents = mode.map(start).transpose()?;
    let seconds = timed.seconds.max(seconds);
    let ours = Work {
        operation: timed.operation,
        bytes: timed.bytes,
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
    let ours = Pair::start(agents.as_ref(), network, 0, &[ours])?.finish()?;
    let of = |found: Vec<Found>| found.first().copied().context("what it found");
    Ok((of(ours)?, of(long.finish()?)?))
}

/// Measures all, run by run in turn; returns rows and what they say of the goals.
pub(super) fn measure(runs: usize, seconds: f64) -> Result<(Vec<Row>, Vec<Goal<Place>>)> {
    let star = LINE.join()?;
    let hop = Network(Hop::of_star(&star));
    let mut cells = [
        Cell::new(hop, SHORT, &[0, 1, 2]),
        Cell::new(Network(None), SHORT, &[0, 1, 2]),
        Cell::new(hop, FLOW, &[0, 2]),
    ];
    for _ in 0..runs {
        cells.iter_mut().try_for_each(|cell| cell.run(seconds))?;
    }
    let [short, shm, flow] = cells.each_ref().map(Cell::rows);
    let (short, shm, flow) = (short?, shm?, flow?);
    let goals = [goals(&short), goals_in_memory(&shm), goals_of_flow(&flow)].concat();
    Ok(([short, shm, flow].into_iter().flatten().collect(), goals))
}

fn goal(row: &Row, name: &str, value: f64, limit: Limit) -> Goal<Place> {
    Goal::new(name, row.timed.place(), decimals(value, 4), limit)
}

fn p80(a: &Row, b: &Row) -> f64 {
    a.latency_ns()[1] / b.latency_ns()[1]
}

/// Figures 2a and 8 of the DRUM paper over shared memory, as they were registered (E5.2, E5.8).
fn goals_in_memory(rows: &[Row]) -> Vec<Goal<Place>> {
    let [raw, _, drum, raw_100, _, drum_100] = rows else { return Vec::new() };
    let of_agent = "agent's p80 beside 100 outstanding by 20";
    vec![
        goal(raw, "RAW's p80 beside 100 outstanding by 20", p80(raw_100, raw), Limit::AtLeast(2.0)),
        goal(drum, of_agent, p80(drum_100, drum), Limit::AtMost(1.2)),
        goal(drum, of_agent, p80(drum_100, drum), Limit::AtMost(1.3)),
    ]
}

/// Figure 9: by how much the median shifts, either way (E5.9).
fn goals_of_flow(rows: &[Row]) -> Vec<Goal<Place>> {
    let [_, drum, _, drum_100] = rows else { return Vec::new() };
    let shift = drum_100.latency_ns()[0] / drum.latency_ns()[0];
    let name = "agent's median of a flow beside 100 outstanding and 20, the larger by the smaller";
    vec![goal(drum, name, shift.max(1.0 / shift), Limit::AtMost(1.1))]
}

/// What was to hold before it was measured. Rows come in the order of [`BATCHES`], then of [`RIVALS`].
fn goals(rows: &[Row]) -> Vec<Goal<Place>> {
    let [raw, justitia, drum, raw_100, justitia_100, drum_100] = rows else { return Vec::new() };
    let goal = |name, value, limit| goal(drum, name, value, limit);
    let p99 = |a: &Row, b: &Row| a.latency_ns()[2] / b.latency_ns()[2];
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
