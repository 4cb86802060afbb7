//! `reads`: the shipped decision when to read the status bytes, beside somebody who knows the future
//! (S1.33). In virtual time: the same on every machine.
use crate::output;
use crate::reads_model::{Comparison, LONG_READ, PAPER, SHAPES, SHORT_READ, Shape, Times, compare};
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
    Ok(())
}

type Case = (Times, Shape, u32, (&'static str, Refill));

fn cases() -> impl Iterator<Item = Case> {
    let goal = SHAPES.map(|shape| (PAPER, shape));
    let others = [(PAPER, Shape::Paced), (SHORT_READ, Shape::Steady), (LONG_READ, Shape::Steady)];
    goal.into_iter().chain(others).flat_map(|(times, shape)| {
        SLOTS.into_iter().flat_map(move |slots| {
            let threshold = slots / 2;
            [
                ("adaptive", Refill::Adaptive),
                ("ahead-half", Refill::Ahead { threshold }),
                ("when-empty", Refill::WhenEmpty),
            ]
            .map(|policy| (times, shape, slots, policy))
        })
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
