//! The paper's one-sided problem as printed: capacities `sum log x <= m log(q / m)`, one penalty, eq. 9.
//!
//! It is degenerate. At alpha = 1 and equal weights the objective is a constant on the boundary of the
//! capacity; above 1 the rates that maximise it over-commit what the host can send.
use crate::Output;
use crate::measure::{Reference, Trace};
use crate::report::{fill, row};
use anyhow::Result;
use catchment_control::drum::{Problem, Sided, marginal, utility};

const LONGEST: usize = 200;
/// The paper's penalty, in the middle of its sweep.
const RHO: f64 = 1e-3;

/// Which sign the dual step of eq. 9 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// `u + F(x) + z`, as printed.
    Printed,
    /// `u + F(x) - z`.
    Mended,
}

/// Runs the printed and the mended sign on a one-sided problem; the rates are taken as they come, not
/// made to fit, so that `max_use` tells by how much they over-commit.
pub(crate) fn run(
    output: &Output,
    name: &str,
    problem: &Problem,
    reference: &Reference,
) -> Result<()> {
    if problem.sided() == Sided::Two {
        return Ok(());
    }
    for sign in [Sign::Printed, Sign::Mended] {
        let mut trace = Trace::default();
        let mut x = Vec::new();
        let mut objective = f64::NAN;
        iterate(problem, RHO, sign, LONGEST, |rates| {
            let use_of = most_used(problem, rates);
            objective = value(problem, rates);
            trace.add(reference, problem.alpha, objective, use_of);
            x = rates.to_vec();
        });
        let sign = if sign == Sign::Printed { "eq9-printed" } else { "eq9-mended" };
        let mut row = row(&format!("{name}-{sign}"), problem, "literal");
        fill(&mut row, problem, reference, &trace);
        row.max_use = most_used(problem, &x);
        row.feasible = trace.most_used <= 1.0 + 1e-12;
        if !row.feasible {
            // What does not fit is no solution, however much it would be worth.
            (row.iterations, row.iterations_999, row.iterations_1e6) = (None, None, None);
            row.utility_fraction_of_optimum = None;
        }
        row.objective = objective.is_finite().then_some(objective);
        row.gap_rel = row.gap_rel.filter(|gap| gap.is_finite());
        row.status = Some("iteration_limit");
        output.row(&row)?;
    }
    Ok(())
}

fn completions(problem: &Problem) -> Vec<f64> {
    let mut shares = vec![0.0; problem.weights.len()];
    let edges = &problem.edges;
    edges
        .from
        .iter()
        .zip(&edges.completions)
        .for_each(|(from, share)| shares[*from as usize] = *share);
    shares
}

/// The objective at rates that need not fit.
fn value(problem: &Problem, x: &[f64]) -> f64 {
    let shares = completions(problem);
    let worth = |at: usize| {
        let z = shares[at] * x[at];
        let beta = problem.beta[at / problem.applications];
        problem.weights[at] * utility(problem.alpha, x[at]) - beta / (z * z)
    };
    (0..x.len()).map(worth).sum()
}

/// The largest `sum x / q` or `sum z / c` of a host.
pub(crate) fn most_used(problem: &Problem, x: &[f64]) -> f64 {
    let (m, shares) = (problem.applications, completions(problem));
    let used = |host: usize| {
        let row = host * m..(host + 1) * m;
        let sent: f64 = x[row.clone()].iter().sum();
        let completed: f64 = row.map(|at| shares[at] * x[at]).sum();
        (sent / problem.send_capacity[host]).max(completed / problem.completion_capacity[host])
    };
    (0..problem.hosts).map(used).fold(0.0, f64::max)
}

/// The root of `w x^-alpha = a x + b + price / x`, from bisection of the logarithm; the sides cross once
/// where the price is not negative.
fn root(alpha: f64, w: f64, a: f64, b: f64, price: f64) -> f64 {
    let gain = |x: f64| w * marginal(alpha, x) - a * x - b - price / x;
    let (mut low, mut high) = (1e-9_f64, 1e9_f64);
    for _ in 0..70 {
        let middle = (low * high).sqrt();
        if gain(middle) > 0.0 { low = middle } else { high = middle }
    }
    (low * high).sqrt()
}

/// Elements of one host within `sum log x <= count log(capacity / count)`.
fn host(alpha: f64, weights: &[f64], a: &[f64], b: &[f64], capacity: f64, x: &mut [f64]) {
    let most = x.len() as f64 * (capacity / x.len() as f64).ln();
    let used_at = |price: f64| -> f64 {
        for (at, x) in x.iter_mut().enumerate() {
            *x = root(alpha, weights[at], a[at], b[at], price);
        }
        x.iter().map(|x| x.ln()).sum()
    };
    crate::price::fit(used_at, most, 1e12, 50);
}

/// Iterates as printed, from `z = u = 0`, and shows the rates after every iteration.
pub(crate) fn iterate(
    problem: &Problem,
    rho: f64,
    sign: Sign,
    count: usize,
    mut see: impl FnMut(&[f64]),
) {
    let (m, shares) = (problem.applications, completions(problem));
    let all = problem.weights.len();
    let (mut x, mut z, mut u) = (vec![1.0; all], vec![0.0; all], vec![0.0; all]);
    let a: Vec<f64> = shares.iter().map(|share| rho * share * share).collect();
    let flat = vec![rho; all];
    for _ in 0..count {
        let b: Vec<f64> = (0..all).map(|at| rho * shares[at] * (u[at] - z[at])).collect();
        for of in 0..problem.hosts {
            let row = of * m..(of + 1) * m;
            let weights = &problem.weights[row.clone()];
            host(
                problem.alpha,
                weights,
                &a[row.clone()],
                &b[row.clone()],
                problem.send_capacity[of],
                &mut x[row],
            );
        }
        let b: Vec<f64> = (0..all).map(|at| -rho * (shares[at] * x[at] + u[at])).collect();
        for of in 0..problem.hosts {
            let row = of * m..(of + 1) * m;
            let weights = vec![2.0 * problem.beta[of]; m];
            host(
                3.0,
                &weights,
                &flat[row.clone()],
                &b[row.clone()],
                problem.completion_capacity[of],
                &mut z[row],
            );
        }
        for at in 0..all {
            let sent = shares[at] * x[at];
            u[at] += if sign == Sign::Printed { sent + z[at] } else { sent - z[at] };
        }
        see(&x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;

    /// One host without completions to speak of.
    fn alone(alpha: f64) -> Problem {
        let mut problem = Family::new(1, 4, alpha, 0, 1).draw();
        problem.beta[0] = 1e-9;
        problem.completion_capacity[0] = 1e6;
        problem.weights.fill(1.0);
        problem
    }

    /// S5.14: the capacity as printed, degenerate.
    #[test]
    fn at_alpha_1_the_printed_objective_is_the_same_all_over_the_boundary() {
        let problem = alone(1.0);
        let q = problem.send_capacity[0];
        let equal = vec![q / 4.0; 4];
        // The same sum of logarithms, and nine tenths more of the capacity than there is.
        let skewed = [q * 1.8, q / 4.0, q / 4.0, q / 4.0 / 7.2];
        let logs = |x: &[f64]| x.iter().map(|x| x.ln()).sum::<f64>();
        assert!((logs(&equal) - logs(&skewed)).abs() < 1e-9);
        assert!((value(&problem, &equal) - value(&problem, &skewed)).abs() < 1e-6);
        assert!(most_used(&problem, &skewed) > 1.9);
    }

    /// S5.14.
    #[test]
    fn below_the_printed_capacity_more_is_sent_than_there_is() {
        let mut problem = alone(0.5);
        problem.weights = vec![1.0, 1.0, 1.0, 8.0];
        let mut used = 0.0;
        iterate(&problem, RHO, Sign::Mended, 50, |x| used = most_used(&problem, x));
        assert!(used > 1.05, "{used}");
    }
}
