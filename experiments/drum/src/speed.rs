//! Rows `speed`: time of an iteration on one core, beside the bandwidth of the memory in the same run.
use crate::Output;
use crate::family::Family;
use crate::rows::Speed;
use anyhow::Result;
use catchment_control::drum::{Isa, Problem, Real, Settings, Solver, Start, isa, limit_isa};
use std::hint::black_box;
use std::time::Instant;

/// Iterations before the clock starts, and those of which the median counts; all renew penalties.
const WARM: usize = 4;
const MEASURED: usize = 11;

pub(crate) fn run(output: &Output) -> Result<()> {
    for most in [Isa::Widest, Isa::Avx2, Isa::Baseline] {
        let before = isa();
        limit_isa(most);
        // Where a processor has no wider registers, two of these are one.
        if most == Isa::Widest || isa() != before {
            rows(output)?;
        }
    }
    limit_isa(Isa::Widest);
    Ok(())
}

fn rows(output: &Output) -> Result<()> {
    for alpha in [1.0, 2.0, 5.0, 0.5, 1.3] {
        let one = Family::new(2000, 500, alpha, 0, 1).draw();
        row::<f32>(output, "admm-one", &one)?;
        row::<f64>(output, "admm-one", &one)?;
        drop(one);
        let two = Family::new(1000, 500, alpha, 2, 1).draw();
        row::<f32>(output, "admm-two", &two)?;
        row::<f64>(output, "admm-two", &two)?;
    }
    Ok(())
}

/// STREAM's triad: bytes per second of `a = b + 3 c` over arrays far larger than any cache.
fn triad() -> f64 {
    let count = 8_000_000;
    let (mut a, b, c) = (vec![0.0_f64; count], vec![1.0_f64; count], vec![2.0_f64; count]);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begin = Instant::now();
        a.iter_mut().zip(&b).zip(&c).for_each(|((a, b), c)| *a = b + 3.0 * c);
        black_box(&mut a);
        best = best.min(begin.elapsed().as_secs_f64());
    }
    24.0 * count as f64 / best
}

fn row<T: Real>(output: &Output, algorithm: &'static str, problem: &Problem) -> Result<()> {
    let triad_bytes_per_s = triad();
    let settings = Settings { start: Start::Fair, ..Settings::default() };
    let mut solver = Solver::<T>::new(problem, settings)?;
    let mut times = Vec::new();
    for iteration in 0..WARM + MEASURED {
        let begin = Instant::now();
        black_box(solver.iterate());
        if iteration >= WARM {
            times.push(begin.elapsed().as_nanos() as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    let ns = times[MEASURED / 2];
    let (variables, edges) = (problem.weights.len() as f64, problem.edges.from.len() as f64);
    let size = std::mem::size_of::<T>() as f64;
    // Nine arrays over variables; two-sided: seven over variables, five over edges and their indices.
    let bytes = if algorithm == "admm-one" {
        9.0 * size
    } else {
        7.0 * size + edges / variables * (5.0 * size + 8.0)
    };
    let per_variable = ns / variables;
    output.row(&Speed {
        what: "speed",
        algorithm,
        precision: T::NAME,
        isa: isa(),
        alpha: problem.alpha,
        n: problem.hosts,
        m: problem.applications,
        threads: 1,
        ns_per_variable_iteration: per_variable,
        ns_per_edge_iteration: ns / edges,
        bytes_per_variable_iteration: bytes,
        triad_bytes_per_s,
        bandwidth_fraction: bytes / per_variable * 1e9 / triad_bytes_per_s,
        passes: solver.passes(),
    })
}
