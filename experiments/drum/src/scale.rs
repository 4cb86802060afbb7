//! Rows `scale`: a large problem, from nothing to a certificate.
use crate::family::Family;
use crate::rows::Scale;
use crate::{Output, run};
use anyhow::Result;
use catchment_control::drum::{Problem, Real, Settings, Solver};
use std::num::NonZero;
use std::time::Instant;

pub(crate) fn run(output: &Output) -> Result<()> {
    let problem = Family::new(1000, 1000, 1.0, 2, 1).draw();
    for threads in [1, 2] {
        row::<f64>(output, &problem, threads)?;
        row::<f32>(output, &problem, threads)?;
    }
    if output.full {
        // 18 GB.
        row::<f32>(output, &Family::new(10_000, 5000, 1.0, 2, 1).draw(), 2)?;
    }
    Ok(())
}

fn row<T: Real>(output: &Output, problem: &Problem, threads: usize) -> Result<()> {
    let count = NonZero::new(threads).unwrap_or(NonZero::<usize>::MIN);
    let settings = Settings { gap: 0.005, iterations: 60, threads: count, ..Settings::default() };
    let begin = Instant::now();
    let mut solver = Solver::<T>::new(problem, settings)?;
    let solution = solver.solve();
    let seconds = begin.elapsed().as_secs_f64();
    let certified = solution.certified_gap();
    let begin = Instant::now();
    for _ in 0..3 {
        solver.iterate();
    }
    output.row(&Scale {
        what: "scale",
        n: problem.hosts,
        m: problem.applications,
        edges: problem.edges.from.len(),
        alpha: problem.alpha,
        precision: T::NAME,
        threads,
        seconds_to_certified_995: (certified <= 0.005).then_some(seconds),
        seconds_per_iteration: begin.elapsed().as_secs_f64() / 3.0,
        iterations: solution.iterations,
        certified_gap_rel: certified,
        peak_bytes: run::peak_bytes(),
    })
}
