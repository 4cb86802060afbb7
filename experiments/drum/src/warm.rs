//! Rows `warm`: rounds after a change, from where the solver stood.
use crate::Output;
use crate::family::{Chance, Family};
use crate::measure::{Reference, trace};
use crate::rows::Warm;
use anyhow::Result;
use catchment_control::drum::{Problem, Settings, Solver};

const ROUNDS: usize = 60;

/// A change: its name and what it does.
type Change = (&'static str, fn(&mut Problem, &mut Chance));

const CHANGES: [Change; 5] = [
    ("none", |_, _| ()),
    ("weights-5%-times-4", |problem, chance| {
        problem
            .weights
            .iter_mut()
            .filter(|_| chance.draw() < 0.05)
            .for_each(|weight| *weight *= 4.0);
    }),
    ("capacities-20%", |problem, chance| {
        let capacities = problem.send_capacity.iter_mut().chain(&mut problem.completion_capacity);
        capacities.for_each(|capacity| *capacity *= chance.between(0.8, 1.2));
    }),
    ("host-loses-80%", |problem, _| problem.completion_capacity[3] *= 0.2),
    ("applications-10%-replaced", |problem, chance| {
        let replaced: Vec<bool> = problem.weights.iter().map(|_| chance.draw() < 0.1).collect();
        for (weight, replaced) in problem.weights.iter_mut().zip(&replaced) {
            if *replaced {
                *weight = [1.0, 2.0, 4.0, 8.0][chance.below(4)];
            }
        }
        let edges = &mut problem.edges;
        for (from, share) in edges.from.iter().zip(&mut edges.completions) {
            if replaced[*from as usize] {
                *share *= chance.between(0.3, 3.0);
            }
        }
    }),
];

pub(crate) fn run(output: &Output) -> Result<()> {
    let (n, m) = if output.full { (1000, 500) } else { (60, 40) };
    for alpha in [0.5, 1.0, 2.0, 5.0] {
        let before = Family::new(n, m, alpha, 2, 9).draw();
        let settings = Settings { gap: 1e-7, ..Settings::default() };
        let mut settled = Solver::<f64>::new(&before, settings)?;
        settled.solve();
        for (change, apply) in CHANGES {
            let mut after = before.clone();
            apply(&mut after, &mut Chance::new(3));
            let reference = Reference::find(&after)?;
            let mut solver = settled.clone();
            solver.change(&after)?;
            let trace = trace(&mut solver, &after, &reference, ROUNDS);
            output.row(&Warm {
                what: "warm",
                n,
                m,
                alpha,
                change,
                iterations: trace.iterations(),
            })?;
        }
    }
    Ok(())
}
