//! Rows `loss`: rounds while messages are lost.
use crate::Output;
use crate::family::{Chance, Family};
use crate::measure::{Reference, Trace};
use crate::rows::Loss;
use anyhow::Result;
use catchment_control::drum::{Settings, Solver};
use std::thread;

const ROUNDS: usize = 40;

pub(crate) fn run(output: &Output) -> Result<()> {
    let seeds = if output.full { 30 } else { 5 };
    let sizes: &[(usize, usize)] =
        if output.full { &[(100, 50), (1000, 500)] } else { &[(100, 50)] };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for &(n, m) in sizes {
        for alpha in [0.5, 1.0, 2.0, 5.0] {
            let problem = Family::new(n, m, alpha, 2, 21).draw();
            let reference = Reference::find(&problem)?;
            let start = Solver::<f64>::new(&problem, Settings::default())?;
            let of_seeds = |loss| if loss == 0.0 { 1..=1 } else { 1..=seeds };
            let draws: Vec<(f64, u64)> = [0.0, 0.01, 0.05, 0.1]
                .into_iter()
                .flat_map(|loss| of_seeds(loss).map(move |seed| (loss, seed)))
                .collect();
            let trace = |(loss, seed): (f64, u64)| {
                let mut chance = Chance::new(seed);
                let mut solver = start.clone();
                let mut trace = Trace::default();
                for _ in 0..ROUNDS {
                    solver.iterate_with_loss(&mut |_, _, _| chance.draw() < loss);
                    let value = solver.recover().value();
                    trace.add(&reference, alpha, value, solver.most_used());
                }
                trace
            };
            for some in draws.chunks(threads) {
                let traces: Vec<Trace> = thread::scope(|scope| {
                    let all = some.iter().map(|draw| scope.spawn(|| trace(*draw)));
                    let all: Vec<_> = all.collect();
                    all.into_iter().map(|one| one.join().expect("it does not panic")).collect()
                });
                for ((loss, seed), trace) in some.iter().zip(traces) {
                    output.row(&row((n, m, alpha), (*loss, *seed), &trace))?;
                }
            }
        }
    }
    Ok(())
}

fn row((n, m, alpha): (usize, usize, f64), (loss, seed): (f64, u64), trace: &Trace) -> Loss {
    Loss {
        what: "loss",
        n,
        m,
        alpha,
        loss,
        seed,
        iterations: trace.iterations(),
        gap_rel_at_10: trace.gaps[9],
        gap_rel_at_20: trace.gaps[19],
        gap_rel_worst_from_5: trace.gaps[4..].iter().copied().fold(f64::MIN, f64::max),
        fell_back: None,
    }
}
