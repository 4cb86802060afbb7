//! `agent`: what an application gets through an agent, beside a device of its own; and whether several
//! get what their weights say.
//!
//! An application, the target of its requests and the agent are processes, fresh ones for each
//! measurement; RAW and the agent take turns. Over shared memory the agent's core is the second one, where the target
//! is too if there are only two. Over a network each end is a host, and all of it is on one core if there are only two.
mod connections;
mod convergence;
mod crowd;
mod ends;
mod fairness;
mod head_of_line;
mod regions;
mod role;
mod routing;
mod row;
mod seat;

use crate::goal::{Goal, Unmeasured};
use crate::hop::Hop;
use crate::host::{self, Environment};
use crate::job::{Job, Wait};
use crate::mechanism::Mechanism;
use crate::stats::percentile;
use crate::{output, pair};
use anyhow::{Context as _, Result, ensure};
use catchment_netns::VethPair;
use catchment_perf::{Amount, Operation, Plan, Waiting};
pub(crate) use ends::{AgentProcess, Network, Pair, TARGET, Work, application};
use fairness::{Case, Windows};
pub(crate) use role::role;
use row::{Row, What};
use seat::Found;
use std::time::Duration;

const OPERATIONS: [Operation; 2] = [Operation::Write, Operation::Send];
const OUTSTANDING: [u32; 2] = [1, 64];
/// Bytes of a request; those of `--full` alone are in no goal.
const BYTES: [u64; 3] = [64, 65_536, 1 << 20];
const BYTES_FULL: u64 = 4096;
/// Windows in which shares are compared.
const WINDOWS: u32 = 12;
const WINDOWS_FULL: u32 = 60;
/// One of so many of the agent's windows a rival has: the whole is within its time.
const RIVALS_WINDOWS: u32 = 3;
/// Requests that must not go astray.
const REQUESTS: u64 = 100_000;
const REQUESTS_FULL: u64 = 10_000_000;

/// Measure an application through an agent, beside one with a device of its own
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Medians of 5 runs: within 4 minutes; the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Medians of 21 runs
    #[arg(long)]
    full: bool,
    /// Fresh processes of each row instead
    #[arg(long)]
    runs: Option<usize>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Bytes of a request; left out, 64, 65536 and 1048576, with --full 4096 too
    #[arg(long, value_delimiter = ',')]
    bytes: Vec<u64>,
    /// Only requests beside batches of others: short ones over a hop of 1 Gbit/s and over shared memory, and a flow of 16 MiB over
    /// the hop; RAW, JUSTITIA and the agent
    #[arg(long)]
    head_of_line: bool,
    /// Windows in which shares are compared; left out, 12, with --full 60
    #[arg(long)]
    windows: Option<u32>,
    /// Seconds of each window
    #[arg(long, default_value_t = 1.0)]
    window_seconds: f64,
    /// Only how long new rates take, of two hosts by either way of their rounds, and of one
    #[arg(long)]
    convergence: bool,
    /// Only applications that come and go, many connections, and requests of many
    #[arg(long)]
    crowds: bool,
    /// What the policy says that the device sends, in bytes a second, where fifty applications come and go on a line; left out,
    /// 2,000,000,000
    #[arg(long, value_name = "BYTES_PER_S")]
    line: Option<u64>,
    /// Only how long a region takes to be made: of a memfd, and in a memory chunk
    #[arg(long)]
    regions: bool,
}

impl Options {
    fn bytes(&self) -> Vec<u64> {
        if !self.bytes.is_empty() {
            return self.bytes.clone();
        }
        let more = self.full.then_some(BYTES_FULL);
        BYTES.into_iter().chain(more).collect()
    }

    fn windows(&self) -> Windows {
        let count = if self.full { WINDOWS_FULL } else { WINDOWS };
        Windows { count: self.windows.unwrap_or(count), seconds: self.window_seconds }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let runs = options.runs.unwrap_or(if options.full { 21 } else { 5 });
    ensure!(runs > 0 && options.seconds > 0.0, "a measurement takes time");
    ensure!(options.window_seconds > 0.0, "a window takes time");
    if options.json {
        output::json(&serde_json::json!({
            "what": "run",
            "form": if options.full { "--full" } else { "--quick" },
            "runs": runs,
            "seconds": options.seconds,
            "environment": Environment::detect(),
        }))?;
    } else {
        output::line(Row::HEAD)?;
    }
    if options.head_of_line {
        let (rows, goals) = head_of_line::measure(runs, options.seconds).context("head of line")?;
        for row in &rows {
            output::either(options.json, row, head_of_line::Row::line)?;
        }
        for goal in &goals {
            output::either(options.json, goal, Goal::line)?;
        }
        return Ok(());
    }
    if options.convergence {
        return measure_changes(options, runs);
    }
    if options.crowds {
        return measure_crowds(options);
    }
    if options.regions {
        return measure_regions(options.json, runs);
    }
    let (cache_line, hand_over_ns, rows) = compare(options, runs)?;
    for row in std::iter::once(&cache_line).chain(&rows) {
        output::either(options.json, row, Row::line)?;
    }
    measure_crowds(options)?;
    measure_changes(options, runs)?;
    let alone = row::goals_alone(&rows);
    for goal in rows.iter().flat_map(|row| row.goals(hand_over_ns)).chain(alone) {
        output::either(options.json, &goal, Goal::line)?;
    }
    for goal in row::unmeasured() {
        output::either(options.json, &goal, Unmeasured::line)?;
    }
    Ok(())
}

/// Measures how long new rates take.
fn measure_changes(options: &Options, runs: usize) -> Result<()> {
    let changes = convergence::measure(4 * runs).context("convergence")?;
    for row in &changes {
        output::either(options.json, row, convergence::Row::line)?;
    }
    for goal in changes.iter().flat_map(convergence::Row::goals) {
        output::either(options.json, &goal, Goal::line)?;
    }
    Ok(())
}

fn measure_regions(json: bool, runs: usize) -> Result<()> {
    let (rows, goals) = regions::measure(runs).context("regions")?;
    for row in &rows {
        output::either(json, row, regions::Row::line)?;
    }
    goals.iter().try_for_each(|goal| output::either(json, goal, Goal::line))
}

/// Measures what many applications get, and what many connections cost.
fn measure_crowds(options: &Options) -> Result<()> {
    let windows = options.windows();
    let line = Some(options.line.unwrap_or(fairness::LINE_BYTES_PER_S));
    for (rival, line) in [("raw", None), ("justitia", line)] {
        let row = |mode, windows| {
            let row = fairness::measure(Case { mode, line }, windows);
            row.with_context(|| format!("fairness, {mode}, line {line:?}"))
        };
        let fewer = Windows { count: windows.count.div_ceil(RIVALS_WINDOWS), ..windows };
        let (agent, rival) = (row("drum", windows)?, row(rival, fewer)?);
        for row in [&agent, &rival] {
            output::either(options.json, row, fairness::Row::line)?;
        }
        for goal in agent.goals().iter().chain(&agent.goals_beside(&rival)) {
            output::either(options.json, goal, Goal::line)?;
        }
    }
    let time = Duration::from_secs_f64(1.5 * windows.seconds);
    let (rows, costs) = connections::measure(time).context("connections")?;
    let requests = if options.full { REQUESTS_FULL } else { REQUESTS };
    let (routing, strays) = routing::measure(requests).context("routing")?;
    for row in rows.iter().chain([&routing]) {
        output::either(options.json, row, Row::line)?;
    }
    for goal in costs.iter().chain(&strays) {
        output::either(options.json, goal, Goal::line)?;
    }
    Ok(())
}

/// Those that are compared, in turn.
const RIVALS: [(What, Option<&str>); 6] = [
    (What::Raw, None),
    (What::Share, Some("share")),
    (What::Justitia, Some("justitia")),
    (What::Drum, Some("drum")),
    (What::Unlimited, Some("unlimited")),
    (What::Shared, Some(SHARED)),
];
/// Not a mode of the policy: the mode `drum` with an agent at each end, which share queue pairs.
const SHARED: &str = "shared";

/// MTU of the interfaces between two namespaces.
const INTERFACE_MTU: u32 = 9000;
/// Bytes of requests that are measured over a network too.
const ROCE_BYTES: [u64; 3] = [64, 65_536, 1 << 20];

/// What one cell found, run by run, of each of [`RIVALS`].
struct Cell<'a> {
    network: Network<'a>,
    work: Vec<Work>,
    found: [Vec<Vec<Found>>; RIVALS.len()],
}

impl<'a> Cell<'a> {
    fn new(options: &Options, network: Network<'a>, operation: Operation, bytes: u64) -> Self {
        let (seconds, waiting) = (options.seconds, Waiting::Yield);
        let warm_up = Amount::Seconds(seconds / 10.0);
        let work = OUTSTANDING.map(|outstanding| Work {
            operation,
            bytes,
            outstanding,
            warm_up,
            seconds,
            waiting,
        });
        Self { network, work: work.into(), found: Default::default() }
    }

    /// Measures one of the rivals in fresh processes.
    fn measure(&mut self, at: usize) -> Result<()> {
        let start = |mode: &str| match mode {
            SHARED => AgentProcess::start_two("drum", &[1.0], self.network),
            "share" | "justitia" => AgentProcess::start_two(mode, &[1.0], self.network),
            _ => AgentProcess::start(mode, &[1.0], self.network),
        };
        let agent = RIVALS[at].1.map(start).transpose()?;
        let found = Pair::start(agent.as_ref(), self.network, 0, &self.work)?.finish()?;
        self.found[at].push(found);
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.work.iter().enumerate().flat_map(|(at, work)| {
            let plan: Plan = work.plan();
            let of = |who: usize| self.found[who].iter().map(|run| run[at]).collect::<Vec<_>>();
            let raw = of(0);
            let row = |(who, rival): (usize, &(What, _))| {
                Row::new(rival.0, (self.network.provider(), &plan), &of(who), &raw)
            };
            RIVALS.iter().enumerate().map(row).collect::<Vec<_>>()
        })
    }
}

/// Measures all cells in turn, run by run. Returns the row of the cache line, its hand-over in
/// nanoseconds, and the rows of the cells.
fn compare(options: &Options, runs: usize) -> Result<(Row, f64, Vec<Row>)> {
    let veth = VethPair::new(INTERFACE_MTU)
        .inspect_err(|error| eprintln!("no rows over roce: {error}"))
        .ok();
    let cells = OPERATIONS.iter().flat_map(|operation| {
        let shm = Network(None);
        options.bytes().into_iter().map(move |bytes| Cell::new(options, shm, *operation, bytes))
    });
    let mut cells: Vec<Cell<'_>> = cells.collect();
    if veth.is_some() {
        let long = options.bytes().into_iter().filter(|bytes| ROCE_BYTES.contains(bytes));
        let network = Network(veth.as_ref().map(Hop::from));
        cells.extend(long.map(|bytes| Cell::new(options, network, Operation::Write, bytes)));
    }
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for run in 0..runs {
        for found in pair::run(&cache_line(options), None)?.ping_pongs {
            p50.push(found.p50_ns);
            p99.push(found.p99_ns);
        }
        for cell in &mut cells {
            for at in pair::turns(run, RIVALS.len()) {
                cell.measure(at).with_context(|| format!("{:?}", cell.work))?;
            }
        }
    }
    let rows = cells.iter().flat_map(|cell| cell.rows()).collect();
    Ok((Row::cache_line(&p50, &p99, runs), percentile(&p50, 0.5), rows))
}

fn cache_line(options: &Options) -> Job {
    let wait = if host::cores() >= 2 { Wait::Spin } else { Wait::Yield };
    let job = Job::new(Mechanism::CacheLine, (64, 1), wait);
    Job { batch_ms: (options.seconds * 100.0).ceil() as u64, batches: 3, ..job }
}
