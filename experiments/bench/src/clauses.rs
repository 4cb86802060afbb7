//! What the transfer is to reach beside its cells: requests for a block, when status bytes are read,
//! releases out of order, software RoCE beside TCP and bare UDP, and long links.
use crate::goal::Limit::{AtLeast, AtMost};
use crate::goals::{Goal, Place};
use crate::grid::Options;
use crate::job::{Job, Program, Workers};
use crate::mechanism::{Mechanism, Provider};
use crate::papers::requests_per_block;
use crate::reads_model::{PAPER, SHAPES, Shape, compare};
use crate::stats::percentile;
use crate::times::Law;
use crate::{goals, long, pair, roce};
use anyhow::Result;
use catchment_transfer::Refill;

/// Blocks that are counted in lock-step.
const COUNT: u64 = 3_000;
const SLOTS: [usize; 4] = [3, 4, 16, 64];
/// Blocks of the loads under which the status bytes are read.
const LOAD_BLOCKS: usize = 20_000;
/// The source's time for a block, and the workers' part of their time.
const BLOCK_NS: u64 = 20_000;
const WORKERS: usize = 4;
const BUSY: f64 = 0.9;
/// Seconds of each long link, after it has warmed up.
const LONG_S: f64 = 4.0;
/// Pairs of processes: the first choose the rival, the others judge.
const RUNS: usize = 3;

/// Returns what could be measured; the others are not measured, and say why on standard error.
pub(crate) fn measure(options: &Options) -> Vec<Goal> {
    let mut all = Vec::new();
    let mut add = |name: &str, found: Result<Vec<Goal>>| match found {
        Ok(goals) => all.extend(goals),
        Err(error) => eprintln!("\rnot measured: {name}: {error:#}"),
    };
    add("requests for a block", requests());
    add("reading the status bytes", Ok(stalls()));
    add("releases out of order", out_of_order(options));
    add("software RoCE beside TCP and bare UDP", beside_tcp());
    if !options.quick {
        add("long links", long_links());
    }
    all
}

/// One WRITE a block, and as many READs as a ring of N blocks needs, in lock-step.
fn requests() -> Result<Vec<Goal>> {
    let mut all = Vec::new();
    for provider in [Provider::Shm, Provider::Roce] {
        for blocks in SLOTS {
            let [writes, reads] =
                requests_per_block(provider, Mechanism::Sb, (256, blocks), COUNT)?;
            let place = Place::at(provider.name(), 256, blocks);
            all.push(Goal::new(goals::WRITES, place.clone(), writes, AtMost(1.01)));
            let most = 1.0 / (blocks as f64 - 1.0) + 0.01;
            all.push(Goal::new(goals::READS, place, reads / most, AtMost(1.0)));
        }
    }
    Ok(all)
}

/// Stall that somebody who knows the future would not have had, in virtual time.
fn stalls() -> Vec<Goal> {
    let mut all = Vec::new();
    for shape in SHAPES.into_iter().chain([Shape::Paced]) {
        let load = shape.load(LOAD_BLOCKS, 1);
        for blocks in SLOTS {
            let stall = compare(Refill::Adaptive, PAPER, &load, blocks as u32).stall_share();
            let place =
                Place { case: Some(shape.name().to_owned()), ..Place::at("sim", 0, blocks) };
            all.push(Goal::new(goals::STALL, place, stall, AtMost(0.05)));
        }
    }
    all
}

/// Blocks that four workers keep for times of a Pareto law.
fn out_of_order(options: &Options) -> Result<Vec<Goal>> {
    let mean = WORKERS as f64 * BLOCK_NS as f64 * BUSY;
    let program = Program::Workers(Workers {
        count: 2_000,
        workers: WORKERS,
        law: Law::Pareto(mean),
        block_ns: BLOCK_NS,
    });
    let all = [Mechanism::Sb, Mechanism::SwFair, Mechanism::SwFairTail];
    let mut times: [Vec<f64>; 3] = Default::default();
    for run in 0..RUNS {
        for turn in 0..all.len() {
            let at = (run + turn) % all.len();
            let job = Job { batches: 3, program, ..options.job(all[at], 64, 16) };
            let found = pair::run(&job, Some(options.limit()))?.samples.concat();
            times[at].push(percentile(&found, 0.5));
        }
    }
    let rival = if times[1][0] <= times[2][0] { 1 } else { 2 };
    let ratios = times[rival].iter().zip(&times[0]).skip(1);
    let ratios: Vec<f64> = ratios.map(|(rival, ours)| rival / ours).collect();
    let place = Place { rival: Some(all[rival].name()), ..Place::at("shm", 64, 16) };
    Ok(vec![Goal::new(goals::OUT_OF_ORDER, place, percentile(&ratios, 0.5), AtLeast(1.2))])
}

fn beside_tcp() -> Result<Vec<Goal>> {
    let rows = roce::measure_beside(3, 0.7)?;
    let [cpu, latency] = roce::beside(&rows);
    let place = |bytes| Place { bytes: Some(bytes), ..Place::of("roce") };
    let cpu = cpu.map(|cpu| Goal::new(goals::RECEIVER_CPU, Place::of("roce"), cpu, AtMost(1.0)));
    let small = |ratio| Goal::new(goals::SMALL_WRITE, place(64), ratio, AtMost(1.25));
    Ok(cpu.into_iter().chain(latency.map(small)).collect())
}

/// With the default settings of the command, a link at a time.
fn long_links() -> Result<Vec<Goal>> {
    let goal = |(case, fraction)| {
        let place = Place { case: Some(case), ..Place::of("roce") };
        Goal::new(goals::LONG_LINKS, place, fraction, AtLeast(long::LEAST))
    };
    Ok(long::fractions(LONG_S)?.into_iter().map(goal).collect())
}
