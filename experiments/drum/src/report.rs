//! Rows `solve`, from a problem and what a run of it was like.
use crate::measure::{Reference, Trace, sided_name};
use crate::rows::Solve;
use catchment_control::drum::{Coupling, Problem};

/// A row with what is known of the problem.
pub(crate) fn row(name: &str, problem: &Problem, algorithm: &'static str) -> Solve {
    Solve {
        what: "solve",
        instance: name.to_owned(),
        n: problem.hosts,
        m: problem.applications,
        edges: problem.edges.from.len(),
        sided: sided_name(problem),
        coupling: if problem.coupling == Coupling::Equal { "eq" } else { "ge" },
        alpha: problem.alpha,
        precision: "f64",
        algorithm,
        ..Solve::default()
    }
}

fn variables(problem: &Problem) -> usize {
    problem.weights.iter().filter(|weight| **weight > 0.0).count().max(1)
}

/// Adds what a run was like.
pub(crate) fn fill(row: &mut Solve, problem: &Problem, reference: &Reference, trace: &Trace) {
    let count = trace.gaps.len().max(1) as f64;
    row.iterations = trace.iterations();
    row.iterations_999 = Trace::first(&trace.worse, 0.001);
    row.iterations_1e6 = Trace::first(&trace.gaps, 1e-6);
    row.utility_fraction_of_optimum = trace.worse.last().map(|worse| 1.0 - worse.max(0.0));
    row.gap_rel = trace.gaps.last().copied();
    row.optimum = Some(reference.optimum);
    let ns = trace.elapsed.as_nanos() as f64 / count;
    if ns > 0.0 {
        row.ns_per_variable_iteration = Some(ns / variables(problem) as f64);
        row.ns_per_edge_iteration = Some(ns / problem.edges.from.len().max(1) as f64);
    }
    row.max_use = trace.most_used;
}
