//! `reads`: the shipped decision when to read the status bytes, beside somebody who knows the future
//! (S1.33), and a predictor of free times beside fixed thresholds (S1.34). In virtual time: the same on every
//! machine.
mod predict;

use crate::output;
use crate::reads_model::{
    Comparison, LONG_READ, Outcome, PAPER, SHAPES, SHORT_READ, Shape, Times, compare,
};
use crate::stats::decimals;
use anyhow::Result;
use catchment_transfer::Refill;
use serde::Serialize;

const SLOTS: [u32; 3] = [3, 16, 64];
/// Stall that may be avoidable, as a part of the run.
const STALL_LIMIT: f64 = 0.05;
/// READs, as a multiple of the oracle's.
const READS_LIMIT: f64 = 1.2;

/// Simulate when the status bytes are read, beside an oracle
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Of the loads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Blocks to send
    #[arg(long, default_value_t = 20_000)]
    blocks: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    /// `adaptive` (shipped), `ahead-half`, or `when-empty` (the paper).
    policy: &'static str,
    /// Which times: those of the paper, or others.
    times: &'static str,
    t_write_ns: u64,
    t_read_ns: u64,
    load: &'static str,
    slots: u32,
    blocks: usize,
    seed: u64,
    reads: u64,
    reads_oracle: u64,
    reads_ratio: f64,
    /// Time with a block ready and no slot known to be free.
    stall_ns: u64,
    stall_ns_oracle: u64,
    /// The rest, as a part of the run.
    stall_share: f64,
    /// Whether both limits of the goal are kept.
    within_limits: bool,
}

/// The predictor beside the best fixed threshold of the same cell, and the shipped policy.
#[derive(Debug, Serialize)]
struct Prediction {
    what: &'static str,
    times: &'static str,
    load: &'static str,
    slots: u32,
    blocks: usize,
    seed: u64,
    reads: u64,
    stall_ns: u64,
    /// Known slots at which it reads; the one that stalls least, then reads least.
    fixed_threshold: u32,
    reads_fixed: u64,
    stall_ns_fixed: u64,
    reads_adaptive: u64,
    stall_ns_adaptive: u64,
    /// Whether one of the two numbers is a tenth less than with the fixed threshold, and the other no more.
    gain: bool,
    /// The same beside the shipped policy.
    gain_over_adaptive: bool,
}

/// What all cells say.
#[derive(Debug, Serialize)]
struct Verdict {
    what: &'static str,
    id: &'static str,
    cells: usize,
    gains: usize,
    gains_over_adaptive: usize,
    verdict: &'static str,
}

/// The goal, held against the shipped policy with the times of the paper.
#[derive(Debug, Serialize)]
struct Goal {
    what: &'static str,
    goal: String,
    load: &'static str,
    slots: u32,
    stall_share: f64,
    reads_ratio: f64,
    held: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !options.json {
        output::line(
            "policy      times       load             slots   reads  oracle  ratio  stall share",
        )?;
    }
    let rows: Vec<Row> = cases()
        .map(|(times, shape, slots, policy)| row(options, times, shape, slots, policy))
        .collect();
    for row in &rows {
        output::either(options.json, row, Row::line)?;
    }
    for goal in rows.iter().filter_map(Row::goal) {
        output::either(options.json, &goal, Goal::line)?;
    }
    let predictions: Vec<Prediction> =
        cells().map(|(times, shape, slots)| prediction(options, times, shape, slots)).collect();
    for prediction in &predictions {
        output::either(options.json, prediction, Prediction::line)?;
    }
    output::either(options.json, &Verdict::of(&predictions), Verdict::line)
}

/// Every load that is simulated, with its times.
fn cells() -> impl Iterator<Item = (Times, Shape, u32)> {
    let goal = SHAPES.map(|shape| (PAPER, shape));
    let others = [(PAPER, Shape::Paced), (SHORT_READ, Shape::Steady), (LONG_READ, Shape::Steady)];
    let cells = goal.into_iter().chain(others);
    cells.flat_map(|(times, shape)| SLOTS.into_iter().map(move |slots| (times, shape, slots)))
}

fn prediction(options: &Options, times: Times, shape: Shape, slots: u32) -> Prediction {
    let load = shape.load(options.blocks, options.seed);
    let (fixed_threshold, fixed) = predict::best_fixed(times, &load, slots);
    let adaptive = compare(Refill::Adaptive, times, &load, slots).policy;
    let ours = predict::run(times, &load, slots);
    let gains = |other: Outcome| {
        let less = |ours: u64, other: u64| ours as f64 <= 0.9 * other as f64 && other > 0;
        (less(ours.reads, other.reads) && ours.stall_ns <= other.stall_ns)
            || (less(ours.stall_ns, other.stall_ns) && ours.reads <= other.reads)
    };
    Prediction {
        what: "prediction",
        times: times.name,
        load: shape.name(),
        slots,
        blocks: options.blocks,
        seed: options.seed,
        reads: ours.reads,
        stall_ns: ours.stall_ns,
        fixed_threshold,
        reads_fixed: fixed.reads,
        stall_ns_fixed: fixed.stall_ns,
        reads_adaptive: adaptive.reads,
        stall_ns_adaptive: adaptive.stall_ns,
        gain: gains(fixed),
        gain_over_adaptive: gains(adaptive),
    }
}

type Case = (Times, Shape, u32, (&'static str, Refill));

fn cases() -> impl Iterator<Item = Case> {
    cells().flat_map(|(times, shape, slots)| {
        let threshold = slots / 2;
        [
            ("adaptive", Refill::Adaptive),
            ("ahead-half", Refill::Ahead { threshold }),
            ("when-empty", Refill::WhenEmpty),
        ]
        .map(|policy| (times, shape, slots, policy))
    })
}

fn row(
    options: &Options,
    times: Times,
    shape: Shape,
    slots: u32,
    (policy, refill): (&'static str, Refill),
) -> Row {
    let load = shape.load(options.blocks, options.seed);
    let reached = compare(refill, times, &load, slots);
    let Comparison { policy: ours, oracle } = reached;
    let (stall_share, reads_ratio) = (reached.stall_share(), reached.reads_ratio());
    Row {
        what: "reads",
        policy,
        times: times.name,
        t_write_ns: times.t_write_ns,
        t_read_ns: times.t_read_ns,
        load: shape.name(),
        slots,
        blocks: options.blocks,
        seed: options.seed,
        reads: ours.reads,
        reads_oracle: oracle.reads,
        reads_ratio: decimals(reads_ratio, 3),
        stall_ns: ours.stall_ns,
        stall_ns_oracle: oracle.stall_ns,
        stall_share: decimals(stall_share, 4),
        within_limits: stall_share <= STALL_LIMIT && reads_ratio <= READS_LIMIT,
    }
}

impl Row {
    fn line(&self) -> String {
        format!(
            "{:<11} {:<11} {:<16} {:>5} {:>7} {:>7} {:>6.3} {:>12.4}{}",
            self.policy,
            self.times,
            self.load,
            self.slots,
            self.reads,
            self.reads_oracle,
            self.reads_ratio,
            self.stall_share,
            if self.within_limits { "" } else { "  beyond" }
        )
    }

    fn goal(&self) -> Option<Goal> {
        let asked = self.times == PAPER.name && SHAPES.iter().any(|s| s.name() == self.load);
        (self.policy == "adaptive" && asked).then(|| Goal {
            what: "goal",
            goal: format!(
                "adaptive reads: avoidable stall at most {STALL_LIMIT} of the time, and at most \
                 {READS_LIMIT} times the oracle's reads"
            ),
            load: self.load,
            slots: self.slots,
            stall_share: self.stall_share,
            reads_ratio: self.reads_ratio,
            held: self.within_limits,
        })
    }
}

impl Goal {
    fn line(&self) -> String {
        format!(
            "{} {}, {}, {} slots: {:.4} and {:.3}",
            if self.held { "held  " } else { "MISSED" },
            self.goal,
            self.load,
            self.slots,
            self.stall_share,
            self.reads_ratio
        )
    }
}

impl Prediction {
    fn line(&self) -> String {
        format!(
            "predicted   {:<11} {:<16} {:>5} {:>7} reads, {:>8} us of stall; threshold {}: {}, {}; adaptive: {}, {}{}",
            self.times,
            self.load,
            self.slots,
            self.reads,
            self.stall_ns / 1000,
            self.fixed_threshold,
            self.reads_fixed,
            self.stall_ns_fixed / 1000,
            self.reads_adaptive,
            self.stall_ns_adaptive / 1000,
            if self.gain { "  gain" } else { "" }
        )
    }
}

impl Verdict {
    /// A gain is one in most cells: in a few of many, one threshold or another loses by chance.
    fn of(predictions: &[Prediction]) -> Self {
        let count = |is_gain: fn(&Prediction) -> bool| {
            predictions.iter().filter(|one| is_gain(one)).count()
        };
        let gains = count(|one| one.gain);
        Self {
            what: "verdict",
            id: "S1.34",
            cells: predictions.len(),
            gains,
            gains_over_adaptive: count(|one| one.gain_over_adaptive),
            verdict: if 2 * gains > predictions.len() { "gain" } else { "no gain" },
        }
    }

    fn line(&self) -> String {
        format!(
            "{}: a learned prediction gains in {} of {} cells over the best fixed threshold, and in {} over the shipped policy: {}",
            self.id, self.gains, self.cells, self.gains_over_adaptive, self.verdict
        )
    }
}
