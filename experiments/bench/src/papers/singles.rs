//! `sync`, `one-way` and `hold`: single times, and what happens while one block is kept.
use super::bench::Experiment;
use super::record::{Cell, Conditions, Row};
use super::scenario::Workload;
use crate::job::{Hold, Outcome, Program};
use crate::mechanism::Mechanism;
use crate::stats::percentile;

/// Figure 18 of the status-byte paper, in milliseconds.
pub(super) const HOLD: Hold = Hold { from: 100, to: 200, end: 300, bin: 5 };
/// READs of the status bytes that say how long one takes.
const LOOKS: u64 = 300;
/// Bins that the hold is in from beginning to end, 10 ms left out at its beginning.
const HELD_MS: std::ops::Range<f64> = 110.0..200.0;
/// Bins before it, without the beginning.
const BEFORE_MS: std::ops::Range<f64> = 20.0..100.0;
/// Percentiles that are drawn.
const PERCENTILES: [f64; 15] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.9];

pub(super) fn measure(of: &mut Experiment<'_>) {
    let program = program(of.workload, of.effort.count);
    for size in of.sizes() {
        of.progress(&format!("{} B, {} blocks", size.0, size.1));
        let found = of.in_turn(of.effort.restarts, &of.part.mechanisms, size, program);
        let reads = if matches!(program, Program::Hold(_)) {
            of.in_turn(1, &[Mechanism::SbPaper], size, Program::Look { count: LOOKS })
        } else {
            Vec::new()
        };
        for (mechanism, outcomes) in &found {
            let (cell, conditions) = (of.cell(*mechanism, size), of.conditions(outcomes));
            let rows = RowsOf { id: of.id, cell: &cell, conditions: &conditions };
            let reads = reads.iter().filter(|(one, _)| one == mechanism);
            of.rows.extend(rows.program(program, outcomes, reads.map(|(_, reads)| reads)));
        }
    }
}

fn program(workload: Workload, count: u64) -> Program {
    match workload {
        Workload::Look => Program::Look { count },
        Workload::OneWay => Program::OneWay { count },
        Workload::Hold => Program::Hold(HOLD),
        Workload::Sync
        | Workload::Stream
        | Workload::Interactions
        | Workload::Queues
        | Workload::Cameras
        | Workload::Table
        | Workload::ReleaseOrder
        | Workload::Duplex
        | Workload::Grants
        | Workload::Connections
        | Workload::Background
        | Workload::Store
        | Workload::Solver => Program::Sync { count },
    }
}

fn within(run: &[u64], span: &std::ops::Range<f64>) -> Vec<f64> {
    let bins = run.iter().enumerate();
    let inside = bins.filter(|(bin, _)| span.contains(&((*bin as u64 * HOLD.bin) as f64)));
    inside.map(|(_, blocks)| *blocks as f64).collect()
}

struct RowsOf<'a> {
    id: &'a str,
    cell: &'a Cell,
    conditions: &'a Conditions,
}

impl RowsOf<'_> {
    fn row(&self, cell: &Cell, metric: (&'static str, &'static str), values: Vec<f64>) -> Row {
        Row::new(self.id, cell, metric, values, self.conditions)
    }

    fn program<'o>(
        &self,
        program: Program,
        outcomes: &[Outcome],
        reads: impl Iterator<Item = &'o Vec<Outcome>>,
    ) -> Vec<Row> {
        match program {
            Program::Sync { .. } => self.times("sync_ns", outcomes),
            Program::OneWay { .. } => self.times("one_way_ns", outcomes),
            Program::Look { .. } => self.times("paper_sync_ns", outcomes),
            Program::Hold(hold) => {
                let dips = reads.filter_map(|reads| self.dip(outcomes, reads));
                let mut rows = self.bins(hold, outcomes);
                rows.extend(dips);
                rows
            }
            Program::Stream | Program::Cameras(_) | Program::Workers(_) => Vec::new(),
        }
    }

    /// Medians of batches, how far the times lie apart, and their distribution.
    fn times(&self, metric: &'static str, outcomes: &[Outcome]) -> Vec<Row> {
        let batches: Vec<&Vec<f64>> = outcomes.iter().flat_map(|o| &o.samples).collect();
        if batches.is_empty() {
            return Vec::new();
        }
        let of = |part: f64| -> Vec<f64> {
            batches.iter().map(|batch| percentile(batch, part)).collect()
        };
        let all: usize = batches.iter().map(|batch| batch.len()).sum();
        let spreads = of(0.5).iter().zip(of(0.99)).map(|(p50, p99)| (p99 - p50) / p50).collect();
        let mut rows = vec![
            self.row(self.cell, (metric, "ns"), of(0.5)),
            self.row(self.cell, ("p99_ns", "ns"), of(0.99)),
            self.row(self.cell, ("spread", "1"), spreads),
            self.row(self.cell, ("times", "1"), vec![all as f64]),
        ];
        for percent in PERCENTILES {
            let cell = self.cell.at(percent, "%");
            rows.push(self.row(&cell, ("percentile_ns", "ns"), of(percent / 100.0)));
        }
        rows
    }

    /// How far what is left lies from what the times of a block and of a READ say, in points: with N
    /// blocks, each costs a READ by N.
    fn dip(&self, outcomes: &[Outcome], reads: &[Outcome]) -> Option<Row> {
        let reads: Vec<f64> = reads.iter().flat_map(|o| o.samples.concat()).collect();
        let blocks = self.cell.blocks as f64;
        if reads.is_empty() || blocks < 2.0 {
            return None;
        }
        let read_ns = percentile(&reads, 0.5);
        let runs = outcomes.iter().flat_map(|o| &o.bins);
        let points = runs.map(|run| {
            let before = percentile(&within(run, &BEFORE_MS), 0.5).max(1.0);
            let block_ns = HOLD.bin as f64 * 1e6 / before;
            let with_less = block_ns - read_ns / blocks + read_ns / (blocks - 1.0);
            let kept = percentile(&within(run, &HELD_MS), 0.5) / before;
            100.0 * (kept - block_ns / with_less)
        });
        let metric = ("kept_off_formula_points", "%");
        Some(self.row(self.cell, metric, points.collect()))
    }

    /// The series of bins, and what is left while the block is kept.
    fn bins(&self, hold: Hold, outcomes: &[Outcome]) -> Vec<Row> {
        let runs: Vec<&Vec<u64>> = outcomes.iter().flat_map(|o| &o.bins).collect();
        let bins = (hold.end / hold.bin) as usize;
        let at = |bin: usize| (bin as u64 * hold.bin) as f64;
        let rate = |blocks: u64| blocks as f64 * self.cell.bytes as f64 * 1e3 / hold.bin as f64;
        let mut rows = Vec::new();
        for bin in 0..bins {
            let cell = self.cell.at(at(bin), "ms");
            let values = runs.iter().filter_map(|run| run.get(bin)).map(|n| rate(*n));
            rows.push(self.row(&cell, ("bin_bytes_per_s", "B/s"), values.collect()));
        }
        let rates = |run: &[u64], span| -> Vec<f64> {
            within(run, span).into_iter().map(|blocks| rate(blocks as u64)).collect()
        };
        let part = |run: &&Vec<u64>| {
            let before = percentile(&rates(run, &BEFORE_MS), 0.5);
            percentile(&rates(run, &HELD_MS), 0.5) / before.max(1.0)
        };
        let least = |run: &&Vec<u64>| rates(run, &HELD_MS).into_iter().fold(f64::MAX, f64::min);
        let most = |run: &&Vec<u64>| rates(run, &HELD_MS).into_iter().fold(0.0, f64::max);
        rows.push(self.row(self.cell, ("kept_part", "1"), runs.iter().map(part).collect()));
        let ends = runs.iter().map(least).collect();
        rows.push(self.row(self.cell, ("held_least_bytes_per_s", "B/s"), ends));
        let ends = runs.iter().map(most).collect();
        rows.push(self.row(self.cell, ("held_most_bytes_per_s", "B/s"), ends));
        rows
    }
}
