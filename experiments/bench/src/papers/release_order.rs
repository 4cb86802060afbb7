//! `release-order`: blocks that are processed for different times, by one or several workers, in
//! virtual time and from process to process, and what is expected of them.
use super::bench::Bench;
use super::record::{Cell, Conditions, Row};
use super::scenario::{Measure, Scenario};
use super::simulated::{Expected, Simulated};
use super::virtual_stream::{conditions, shape};
use crate::job::{Outcome, Program, Workers};
use crate::mechanism::{Mechanism, Provider};
use crate::stats::percentile;
use crate::times::{Constants, Law};
use anyhow::{Context as _, Result};

/// Part of their time that the workers are busy if they never wait for a block.
const LOAD: f64 = 0.9;

pub(super) fn measure(
    bench: &mut Bench,
    scenario: &Scenario,
    part: &Measure,
    provider: Provider,
) -> Result<Vec<Row>> {
    let constants = part.constants.context("the order of releases needs [measure.constants]")?;
    let effort = part.effort(bench.quick());
    let bytes = *effort.bytes.first().context("a scenario without bytes")?;
    let mut rows = Vec::new();
    for &blocks in part.blocks(bench.quick()) {
        for &workers in &part.workers {
            for (name, law) in laws(workers as f64 * constants.t_write_us * 1000.0 * LOAD) {
                bench.progress(&format!("{} {provider}: {name}, {blocks} blocks", scenario.id));
                let setting = Setting {
                    provider,
                    constants,
                    bytes,
                    blocks,
                    workers,
                    law,
                    count: effort.count,
                };
                let found = match provider {
                    Provider::Sim => setting.simulate(&part.mechanisms, effort.repetitions)?,
                    Provider::Shm | Provider::Roce => setting.measure(bench, part)?,
                };
                for came in found {
                    rows.extend(setting.rows(&scenario.id, name, came)?);
                }
            }
        }
    }
    Ok(rows)
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
    provider: Provider,
    constants: Constants,
    bytes: usize,
    blocks: usize,
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
                bytes: u32::try_from(self.bytes)?,
                count: self.count,
                workers: self.workers,
                law: self.law,
                seed,
                helper: mechanism.has_helper(),
            };
            let came = mechanism.with(shape(self.bytes, self.blocks)?, simulated);
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
                conditions: conditions(Some(0), speed * self.bytes as f64),
            })
        });
        all.collect()
    }

    fn measure(&self, bench: &mut Bench, part: &Measure) -> Result<Vec<Came>> {
        let effort = part.effort(bench.quick());
        bench.make_network(self.provider)?;
        let realtime = bench.realtime(self.provider, part.wait);
        let name = format!("{}, {} blocks", self.provider, self.blocks);
        let program = Program::Workers(Workers {
            count: self.count,
            workers: self.workers,
            law: self.law,
            block_ns: (self.constants.t_write_us * 1000.0) as u64,
        });
        let cell = (self.bytes, self.blocks);
        let job = |bench: &mut Bench, mechanism: Mechanism| {
            bench.job(part, (mechanism, self.provider), cell, program)
        };
        let found = bench.in_turn(effort.restarts, &name, &part.mechanisms, job);
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
                    achieved_bytes_per_s: Some(speed * self.bytes as f64),
                    seed: Some(1),
                    ..Conditions::of(part.wait, realtime, &outcomes)
                },
                blocks_per_s,
            }
        });
        Ok(came.collect())
    }

    fn rows(&self, id: &str, law: &str, came: Came) -> Result<Vec<Row>> {
        let expected = |&seed: &u64| -> Result<f64> {
            let model = Expected {
                blocks: self.blocks,
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
        let mut cell = Cell::new(self.provider, came.mechanism, self.bytes, self.blocks);
        (cell.workers, cell.variant) = (Some(self.workers), Some(law.to_owned()));
        let rows = [
            (("blocks_per_s", "1/s"), came.blocks_per_s),
            (("expected_blocks_per_s", "1/s"), expected),
            (("by_expected", "1"), by_expected),
        ];
        let row = |(metric, values)| Row::new(id, &cell, metric, values, &came.conditions);
        Ok(rows.into_iter().map(row).collect())
    }
}
