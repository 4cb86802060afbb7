//! `release-order`: blocks that are processed for different times, by one or several workers, in
//! virtual time and from process to process, and what is expected of them.
use super::bench::Experiment;
use super::record::{Cell, Conditions, Row};
use super::simulated::{Expected, Simulated};
use super::virtual_stream::{conditions, shape};
use crate::job::{Outcome, Program, Workers};
use crate::mechanism::{Mechanism, Provider};
use crate::stats::percentile;
use crate::times::{Constants, Law};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;

/// Part of their time that the workers are busy if they never wait for a block.
const LOAD: f64 = 0.9;

pub(super) fn measure(of: &mut Experiment<'_>) -> Result<()> {
    let constants = of.part.constants.context("the order of releases needs [measure.constants]")?;
    ensure!(of.effort.bytes.len() == 1, "the order of releases is measured for one size of blocks");
    for size in of.sizes() {
        for &workers in &of.part.workers {
            for (name, law) in laws(workers as f64 * constants.t_write_us * 1000.0 * LOAD) {
                of.progress(&format!("{name}, {} blocks", size.1));
                let setting = Setting { constants, size, workers, law, count: of.effort.count };
                let found = match of.provider {
                    Provider::Sim => {
                        setting.simulate(&of.part.mechanisms, of.effort.repetitions)?
                    }
                    Provider::Shm | Provider::Roce | Provider::Rxe => setting.measure(of),
                };
                for came in found {
                    let cell = Cell {
                        workers: Some(workers),
                        variant: Some(name.to_owned()),
                        ..of.cell(came.mechanism, size)
                    };
                    of.rows.extend(setting.rows(of.id, &cell, came)?);
                }
            }
        }
    }
    Ok(())
}

/// Laws with this mean in nanoseconds.
fn laws(mean: f64) -> [(&'static str, Law); 4] {
    [
        ("constant", Law::Constant(mean)),
        ("uniform", Law::Uniform(mean)),
        ("exponential", Law::Exponential(mean)),
        ("Pareto", Law::Pareto(mean)),
    ]
}

struct Setting {
    constants: Constants,
    /// Bytes of a block, and blocks.
    size: (usize, usize),
    workers: usize,
    law: Law,
    count: u64,
}

struct Came {
    mechanism: Mechanism,
    blocks_per_s: Vec<f64>,
    seeds: Vec<u64>,
    conditions: Conditions,
}

impl Setting {
    fn simulate(&self, mechanisms: &[Mechanism], seeds: usize) -> Result<Vec<Came>> {
        let simulated = |mechanism: Mechanism, seed| -> Result<f64> {
            let simulated = Simulated {
                constants: self.constants,
                bytes: u32::try_from(self.size.0)?,
                count: self.count,
                workers: self.workers,
                law: self.law,
                seed,
                helper: mechanism.has_helper(),
            };
            let came = mechanism.with(shape(self.size.0, self.size.1)?, simulated);
            let came = came.with_context(|| format!("{mechanism}, {:?}", self.law))?;
            Ok(came.blocks_per_s)
        };
        let all = mechanisms.iter().map(|&mechanism| {
            let seeds: Vec<u64> = (0..seeds as u64).collect();
            let speeds = seeds.iter().map(|&seed| simulated(mechanism, seed));
            let blocks_per_s: Vec<f64> = speeds.collect::<Result<_>>()?;
            let speed = percentile(&blocks_per_s, 0.5);
            Ok(Came {
                mechanism,
                blocks_per_s,
                seeds,
                conditions: conditions(Some(0), Some(speed * self.size.0 as f64)),
            })
        });
        all.collect()
    }

    fn measure(&self, of: &mut Experiment<'_>) -> Vec<Came> {
        let program = Program::Workers(Workers {
            count: self.count,
            workers: self.workers,
            law: self.law,
            block_ns: (self.constants.t_write_us * 1000.0) as u64,
        });
        let found = of.in_turn(of.effort.restarts, &of.part.mechanisms, self.size, program);
        let came = found.into_iter().map(|(mechanism, outcomes)| {
            let times = outcomes.iter().flat_map(|o| o.samples.concat());
            let blocks_per_s: Vec<f64> = times.map(|ns| self.count as f64 * 1e9 / ns).collect();
            // Each process begins with the same seed, after one that warms up.
            let seeds = |one: &Outcome| 1..=one.samples.len() as u64;
            let speed = percentile(&blocks_per_s, 0.5);
            Came {
                mechanism,
                seeds: outcomes.iter().flat_map(seeds).collect(),
                conditions: Conditions {
                    achieved_bytes_per_s: Some(speed * self.size.0 as f64),
                    seed: Some(1),
                    ..of.conditions(&outcomes)
                },
                blocks_per_s,
            }
        });
        came.collect()
    }

    fn rows(&self, id: &str, cell: &Cell, came: Came) -> Result<Vec<Row>> {
        let expected = |&seed: &u64| -> Result<f64> {
            let model = Expected {
                blocks: self.size.1,
                workers: self.workers,
                t_write_ns: self.constants.t_write_us * 1000.0,
                t_sync_ns: self.constants.t_credit_us * 1000.0,
                law: self.law,
                count: self.count,
                seed,
                in_order: came.mechanism.gives_back_in_order(),
            };
            model.blocks_per_s()
        };
        let expected: Vec<f64> = came.seeds.iter().map(expected).collect::<Result<_>>()?;
        let pairs = came.blocks_per_s.iter().zip(&expected);
        let by_expected = pairs.map(|(came, expected)| came / expected).collect();
        // Of one process; others have the same ones.
        let distinct = came.seeds.iter().collect::<BTreeSet<_>>().len() as u64;
        let rows = [
            (("blocks", "1"), vec![(distinct * self.count) as f64]),
            (("blocks_per_s", "1/s"), came.blocks_per_s),
            (("expected_blocks_per_s", "1/s"), expected),
            (("by_expected", "1"), by_expected),
        ];
        let row = |(metric, values)| Row::new(id, cell, metric, values, &came.conditions);
        Ok(rows.into_iter().map(row).collect())
    }
}
