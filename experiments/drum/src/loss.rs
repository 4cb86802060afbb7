//! Rows `loss`: rounds while messages are lost.
use crate::Output;
use crate::family::{Chance, Family};
use crate::measure::{Reference, Trace};
use crate::rows::Loss;
use anyhow::Result;
use catchment_control::drum::{Problem, Settings, Solver};
use std::thread;

const ROUNDS: usize = 40;

/// Parts of all messages that are lost.
pub(crate) const PARTS: [f64; 4] = [0.0, 0.01, 0.05, 0.1];

/// Iterations, and what was lost meanwhile.
pub(crate) struct Run {
    pub(crate) loss: f64,
    pub(crate) seed: u64,
    pub(crate) trace: Trace,
}

/// Returns how many seeds count.
pub(crate) fn seeds(output: &Output) -> u64 {
    if output.full { 30 } else { 5 }
}

pub(crate) fn run(output: &Output) -> Result<()> {
    let sizes: &[(usize, usize)] =
        if output.full { &[(100, 50), (1000, 500)] } else { &[(100, 50)] };
    for &(n, m) in sizes {
        for alpha in [0.5, 1.0, 2.0, 5.0] {
            let problem = Family::new(n, m, alpha, 2, 21).draw();
            let reference = Reference::find(&problem)?;
            for run in runs(&problem, &reference, seeds(output))? {
                output.row(&row((n, m, alpha), &run))?;
            }
        }
    }
    Ok(())
}

/// Iterates with each part lost, by each seed; without loss by one.
pub(crate) fn runs(problem: &Problem, reference: &Reference, seeds: u64) -> Result<Vec<Run>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let start = Solver::<f64>::new(problem, Settings::default())?;
    let of_seeds = |loss| if loss == 0.0 { 1..=1 } else { 1..=seeds };
    let draws: Vec<(f64, u64)> =
        PARTS.into_iter().flat_map(|loss| of_seeds(loss).map(move |seed| (loss, seed))).collect();
    let run = |(loss, seed): (f64, u64)| {
        let mut chance = Chance::new(seed);
        let mut solver = start.clone();
        let mut trace = Trace::default();
        for _ in 0..ROUNDS {
            solver.iterate_with_loss(&mut |_, _, _| chance.draw() < loss);
            let value = solver.recover().value();
            trace.add(reference, problem.alpha, value, solver.most_used());
        }
        Run { loss, seed, trace }
    };
    let mut runs = Vec::new();
    for some in draws.chunks(threads) {
        thread::scope(|scope| {
            let all: Vec<_> = some.iter().map(|draw| scope.spawn(|| run(*draw))).collect();
            runs.extend(all.into_iter().map(|one| one.join().expect("it does not panic")));
        });
    }
    Ok(runs)
}

fn row((n, m, alpha): (usize, usize, f64), run: &Run) -> Loss {
    let trace = &run.trace;
    Loss {
        what: "loss",
        n,
        m,
        alpha,
        loss: run.loss,
        seed: run.seed,
        iterations: trace.iterations(),
        gap_rel_at_10: trace.gaps[9],
        gap_rel_at_20: trace.gaps[19],
        gap_rel_worst_from_5: trace.gaps[4..].iter().copied().fold(f64::MIN, f64::max),
        fell_back: None,
    }
}
