//! `stream` and `release-order` in virtual time.
use super::{
    Bench,
    record::{Cell, Conditions, Row},
    scenario::{Measure, Scenario},
    simulated::{Expected, Law, Simulated},
};
use crate::mechanism::{Mechanism, Provider};
use anyhow::{Context as _, Result};
use catchment_transfer::mechanism::Shape;

/// Blocks of a run in virtual time: enough that the beginning does not show, and not more memory is
/// moved than this.
fn count(bytes: usize) -> u64 {
    const MOST: u64 = 20_000;
    const MOST_BYTES: u64 = 1 << 30;
    (MOST_BYTES / bytes as u64).clamp(300, MOST)
}

const SEED: u64 = 1;

/// Throughput with the constants of a scenario.
pub(super) fn measure(bench: &mut Bench, scenario: &Scenario, part: &Measure) -> Result<Vec<Row>> {
    let constants = part
        .constants
        .context("virtual time needs [measure.constants]")?;
    let effort = part.effort(bench.quick());
    let mut rows = Vec::new();
    for &bytes in &effort.bytes {
        for &blocks in part.blocks(bench.quick()) {
            for &mechanism in &part.mechanisms {
                bench.progress(&format!("{} sim: {bytes} B, {blocks} blocks", scenario.id));
                let came = mechanism.with(
                    shape(bytes, blocks)?,
                    Simulated {
                        constants,
                        bytes: u32::try_from(bytes)?,
                        count: count(bytes),
                        workers: 0,
                        law: Law::Nothing,
                        seed: SEED,
                        helper: mechanism.has_helper(),
                    },
                );
                let came =
                    came.with_context(|| format!("{mechanism}, {bytes} B, {blocks} blocks"))?;
                let cell = Cell::new(Provider::Sim, mechanism, bytes, blocks);
                let conditions = conditions(None, came.blocks_per_s * bytes as f64);
                let speed = came.blocks_per_s;
                for (metric, value) in [
                    (("blocks_per_s", "1/s"), speed),
                    (("bytes_per_s", "B/s"), speed * bytes as f64),
                    (("block_ns", "ns"), 1e9 / speed),
                    (("interactions_per_block", "1"), came.interactions_per_block),
                ] {
                    rows.push(Row::new(
                        &scenario.id,
                        &cell,
                        metric,
                        vec![value],
                        &conditions,
                    ));
                }
            }
        }
    }
    Ok(rows)
}

fn shape(bytes: usize, blocks: usize) -> Result<Shape> {
    Ok(Shape {
        blocks: u32::try_from(blocks)?,
        payload_bytes: u32::try_from(bytes)?,
    })
}

fn conditions(seed: Option<u64>, achieved_bytes_per_s: f64) -> Conditions {
    Conditions {
        wait: "looking takes no time".to_owned(),
        caches: "none",
        restarts: 1,
        achieved_bytes_per_s: Some(achieved_bytes_per_s),
        seed,
        ..Conditions::default()
    }
}

/// Part of their time that the workers are busy if they never wait for a block.
const LOAD: f64 = 0.9;

/// Blocks that are processed for different times, by one or several workers, and what is expected.
pub(super) fn release_order(
    bench: &mut Bench,
    scenario: &Scenario,
    part: &Measure,
) -> Result<Vec<Row>> {
    let constants = part
        .constants
        .context("virtual time needs [measure.constants]")?;
    let effort = part.effort(bench.quick());
    let bytes = *effort.bytes.first().context("a scenario without bytes")?;
    let mut rows = Vec::new();
    for &blocks in part.blocks(bench.quick()) {
        for &workers in &part.workers {
            let mean = workers as f64 * constants.t_write_us * 1000.0 * LOAD;
            let laws = [
                ("constant", Law::Constant(mean)),
                ("uniform", Law::Uniform(mean)),
                ("exponential", Law::Exponential(mean)),
                ("Pareto", Law::Pareto(mean)),
            ];
            for (name, law) in laws {
                for &mechanism in &part.mechanisms {
                    bench.progress(&format!("{} sim: {name}, {blocks} blocks", scenario.id));
                    let (mut came, mut expected) = (Vec::new(), Vec::new());
                    for seed in 0..effort.repetitions as u64 {
                        let simulated = Simulated {
                            constants,
                            bytes: u32::try_from(bytes)?,
                            count: effort.count,
                            workers,
                            law,
                            seed,
                            helper: mechanism.has_helper(),
                        };
                        let result = mechanism.with(shape(bytes, blocks)?, simulated);
                        came.push(
                            result
                                .with_context(|| format!("{mechanism}, {name}"))?
                                .blocks_per_s,
                        );
                        let model = Expected {
                            blocks,
                            workers,
                            t_write_ns: constants.t_write_us * 1000.0,
                            t_sync_ns: constants.t_credit_us * 1000.0,
                            law,
                            count: effort.count,
                            seed,
                            in_order: gives_back_in_order(mechanism),
                        };
                        expected.push(model.blocks_per_s()?);
                    }
                    let mut cell = Cell::new(Provider::Sim, mechanism, bytes, blocks);
                    (cell.workers, cell.variant) = (Some(workers), Some(name.to_owned()));
                    let speed = crate::stats::percentile(&came, 0.5);
                    let conditions = conditions(Some(0), speed * bytes as f64);
                    let by_model = came.iter().zip(&expected).map(|(c, e)| c / e).collect();
                    for (metric, values) in [
                        (("blocks_per_s", "1/s"), came),
                        (("expected_blocks_per_s", "1/s"), expected),
                        (("by_expected", "1"), by_model),
                    ] {
                        rows.push(Row::new(&scenario.id, &cell, metric, values, &conditions));
                    }
                }
            }
        }
    }
    Ok(rows)
}

/// Whether a block that is kept keeps those after it.
fn gives_back_in_order(mechanism: Mechanism) -> bool {
    match mechanism {
        Mechanism::SbPaper
        | Mechanism::Sb
        | Mechanism::SbInPlace
        | Mechanism::SwSack
        | Mechanism::Rendezvous => false,
        Mechanism::SwPaper
        | Mechanism::SwPaperInline
        | Mechanism::SwFair
        | Mechanism::SwFairTail
        | Mechanism::SwFairTailInPlace
        | Mechanism::Tcp
        | Mechanism::TcpBlocking
        | Mechanism::Iceoryx2
        | Mechanism::Ucx
        | Mechanism::Iperf3
        | Mechanism::LibfabricTcp
        | Mechanism::LibfabricShm => true,
    }
}
