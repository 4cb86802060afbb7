//! The paper's baseline: dual decomposition, a step of the prices along the residual.
use crate::Output;
use crate::measure::{Reference, Trace};
use crate::report::{fill, row};
use anyhow::Result;
use catchment_control::drum::{Coupling, Fitter, Problem, rate_at};

const LONGEST: usize = 1000;
/// The paper's step, over the root of the iteration.
pub(crate) const STEP: f64 = 1e-3;

/// Runs the paper's step, and the best of a sweep.
pub(crate) fn run(
    output: &Output,
    name: &str,
    problem: &Problem,
    reference: &Reference,
) -> Result<()> {
    if problem.coupling == Coupling::AtLeast || problem.beta.contains(&0.0) {
        return Ok(());
    }
    let write = |algorithm, trace: &Trace, objective: f64| {
        let mut row = row(name, problem, algorithm);
        row.start = Some("fair");
        fill(&mut row, problem, reference, trace);
        (row.ns_per_variable_iteration, row.ns_per_edge_iteration) = (None, None);
        row.objective = Some(objective);
        row.feasible = trace.most_used <= 1.0 + 1e-12;
        output.row(&row)
    };
    let (trace, objective) = ascend(problem, reference, STEP)?;
    write("subgradient", &trace, objective)?;
    let (trace, objective) = sweep(problem, reference)?;
    write("subgradient-best", &trace, objective)
}

/// Runs steps from 1e-3 to 1e4, and returns the run that arrives first, or comes nearest.
pub(crate) fn sweep(problem: &Problem, reference: &Reference) -> Result<(Trace, f64)> {
    let mut best = ascend(problem, reference, 1e-3)?;
    for power in -5..=8 {
        let next = ascend(problem, reference, 10.0_f64.powf(0.5 * f64::from(power)))?;
        let took = |run: &(Trace, f64)| run.0.iterations().unwrap_or(usize::MAX);
        if (took(&next), best.1) < (took(&best), next.1) {
            best = next;
        }
    }
    Ok(best)
}

/// Returns how the iterations with a step went, and the objective at their end.
pub(crate) fn ascend(problem: &Problem, reference: &Reference, step: f64) -> Result<(Trace, f64)> {
    let count = problem.weights.len();
    let mut fitter = Fitter::new(problem)?;
    let mut trace = Trace::default();
    let mut y = vec![0.0; count];
    let (mut x, mut z) = (vec![0.0; count], vec![0.0; count]);
    let mut objective = f64::NAN;
    for iteration in 1..=LONGEST {
        respond(problem, &y, &mut x, &mut z);
        let fitted = fitter.fit(&x).value();
        trace.add(reference, problem.alpha, fitted, fitter.most_used());
        objective = fitted;
        let step = step / (iteration as f64).sqrt();
        let edges = &problem.edges;
        z.iter().zip(&mut y).for_each(|(z, y)| *y -= step * z);
        for edge in 0..edges.from.len() {
            y[edges.to[edge] as usize] +=
                step * edges.completions[edge] * x[edges.from[edge] as usize];
        }
    }
    Ok((trace, objective))
}

/// What every host takes at prices `y`: rates of its senders, completions of its receivers.
fn respond(problem: &Problem, y: &[f64], x: &mut [f64], z: &mut [f64]) {
    let mut costs = vec![0.0; y.len()];
    let edges = &problem.edges;
    for edge in 0..edges.from.len() {
        costs[edges.from[edge] as usize] += edges.completions[edge] * y[edges.to[edge] as usize];
    }
    let m = problem.applications;
    for host in 0..problem.hosts {
        let row = host * m..(host + 1) * m;
        share(
            problem.alpha,
            &problem.weights[row.clone()],
            &costs[row.clone()],
            problem.send_capacity[host],
            &mut x[row.clone()],
        );
        let worth: Vec<f64> = y[row.clone()].iter().map(|y| -y).collect();
        let weights = vec![2.0 * problem.beta[host]; m];
        share(3.0, &weights, &worth, problem.completion_capacity[host], &mut z[row]);
    }
}

/// Rates `(w / (cost + price))^(1/alpha)` at the least price at which they fit.
fn share(alpha: f64, weights: &[f64], costs: &[f64], capacity: f64, x: &mut [f64]) {
    let used_at = |price: f64| -> f64 {
        for (at, x) in x.iter_mut().enumerate() {
            let cost = (costs[at] + price) / weights[at];
            *x = if cost > 0.0 { rate_at(alpha, cost) } else { f64::INFINITY };
        }
        x.iter().sum()
    };
    crate::price::fit(used_at, capacity, 1e300, 60);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;

    /// S5.21: between hosts the paper's step has not arrived after 1,000 iterations; a larger one comes nearer.
    #[test]
    fn the_papers_step_does_not_arrive_and_a_larger_one_comes_nearer() {
        let problem = Family::new(6, 5, 2.0, 2, 4).draw();
        let reference = Reference::find(&problem).unwrap();
        let (trace, papers) = ascend(&problem, &reference, STEP).unwrap();
        assert_eq!(trace.iterations(), None);
        let (larger, objective) = ascend(&problem, &reference, 10.0 * STEP).unwrap();
        assert!(reference.gap(objective) < reference.gap(papers), "{objective}, {papers}");
        // What is used is made to fit after each.
        assert!(trace.most_used.max(larger.most_used) <= 1.0 + 1e-12);
    }
}
