//! Rows `solve`: from a start to the optimum, by ours and by the paper's forms.
use crate::family::{Family, Spread};
use crate::measure::{Reference, Trace, judged_start, start_name, trace};
use crate::report::{fill, row};
use crate::rows::Solve;
use crate::{Output, literal, subgradient};
use anyhow::{Context, Result};
use catchment_control::drum::format::{Instance, Oracle};
use catchment_control::drum::{
    Objective, Problem, ProblemError, Real, Settings, Sided, Solution, Solver, Start, solve_exactly,
};
use std::path::Path;
use std::time::Instant;

const PUBLIC: &str = include_str!("../../../crates/control/tests/drum/data/oracle_public.json");
/// Iterations of one run at most.
const LONGEST: usize = 200;
/// Where an optimum is known, the run goes on until the last digits.
const LONGEST_KNOWN: usize = 20_000;

/// Sizes of the drawn family: hosts, and applications of each. Those of 5 and 50 million rates are left out, as their optima are
/// to be found too.
const SIZES: [(usize, usize); 6] =
    [(100, 50), (100, 500), (100, 5000), (1000, 50), (1000, 500), (10_000, 50)];

/// Reads the given file, or the public oracle.
pub(crate) fn instances(path: Option<&Path>) -> Result<Vec<Instance>> {
    let text = match path {
        Some(path) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => PUBLIC.to_owned(),
    };
    Ok(Oracle::read(&text)?.instances)
}

pub(crate) fn run(output: &Output, instances: &[Instance], with_family: bool) -> Result<()> {
    for instance in instances.iter().filter(|instance| instance.kind.is_none()) {
        let problem = instance.problem()?;
        let reference = match &instance.optimum {
            Some(optimum) => known(&problem, optimum)?,
            None => Reference::find(&problem)?,
        };
        let longest = if instance.optimum.is_some() { LONGEST_KNOWN } else { LONGEST };
        admm::<f64>(output, &instance.id, &problem, &reference, longest)?;
        admm::<f32>(output, &instance.id, &problem, &reference, LONGEST)?;
        direct(output, &instance.id, &problem, &reference)?;
        if instance.note.is_empty() && problem.limits.is_none() && problem.send_preemption.is_none()
        {
            literal::run(output, &instance.id, &problem, &reference)?;
            subgradient::run(output, &instance.id, &problem, &reference)?;
        }
    }
    if with_family {
        for (name, family) in families(output.full) {
            let problem = family.draw();
            let reference = Reference::find(&problem)?;
            let name = format!("{name}-seed{}", family.seed);
            admm::<f64>(output, &name, &problem, &reference, LONGEST)?;
        }
    }
    Ok(())
}

fn known(
    problem: &Problem,
    optimum: &catchment_control::drum::format::Optimum,
) -> Result<Reference> {
    let rates = optimum.f.context("an optimum has its part f")?;
    let completions = optimum.g.context("an optimum has its part g")?;
    let magnitude = optimum.abs_scale.context("an optimum has its abs_scale")?;
    let weights = problem.weights.iter().sum();
    let parts = Objective { rates, completions, magnitude, weights };
    Ok(Reference { optimum: optimum.objective, parts, x: Some(optimum.x.clone()) })
}

/// The drawn family: a name and what is drawn.
fn families(full: bool) -> Vec<(String, Family)> {
    let mut all = Vec::new();
    let (hosts, applications) = if full { (100, 50) } else { (60, 40) };
    for alpha in [0.5, 1.0, 2.0, 5.0] {
        let base = |degree| Family::new(hosts, applications, alpha, degree, 7);
        let mut add =
            |name: &str, family: Family| all.push((format!("family-{name}-a{alpha}"), family));
        add("one", base(0));
        add("deg1", base(1));
        add("deg2", base(2));
        add("deg2-decades", Family { spread: Spread::Decades, ..base(2) });
        add("deg2-wr16", Family { most_batch: 16, ..base(2) });
        add("deg2-decades-wr16", Family { spread: Spread::Decades, most_batch: 16, ..base(2) });
        add("deg2-limits", Family { limits: true, ..base(2) });
        add("deg2-preempt", Family { preempts: true, hosts: 20, applications: 15, ..base(2) });
        add("deg8", base(8));
        add("hot50-5", Family { hot: Some((0.5, 5)), ..base(2) });
        add("hot90-2", Family { hot: Some((0.9, 2)), ..base(2) });
    }
    if full {
        for alpha in [0.5, 1.0, 2.0, 5.0] {
            for (hosts, applications) in SIZES {
                let family = Family::new(hosts, applications, alpha, 2, 7);
                all.push((format!("family-size-{hosts}x{applications}-a{alpha}"), family));
            }
        }
    }
    all
}

fn add_solution(row: &mut Solve, reference: &Reference, solution: &Solution) {
    row.objective = Some(solution.objective.value());
    row.certified_gap_rel =
        Some((solution.bound - solution.objective.value()) / reference.parts.magnitude);
    row.status = Some(solution.status.name());
    row.x_error_rel = reference.x.as_ref().map(|expected| {
        let most = expected.iter().copied().fold(0.0, f64::max);
        let errors = solution.x.iter().zip(expected).map(|(x, expected)| (x - expected).abs());
        errors.fold(0.0, f64::max) / most
    });
}

fn admm<T: Real>(
    output: &Output,
    name: &str,
    problem: &Problem,
    reference: &Reference,
    longest: usize,
) -> Result<()> {
    let starts: &[Start] = if problem.sided() == Sided::Two && output.full {
        &[Start::Local, Start::Fair]
    } else {
        &[judged_start(problem)]
    };
    for start in starts {
        let settings =
            Settings { start: *start, gap: 1e-6, iterations: LONGEST, ..Settings::default() };
        let mut solver = Solver::<T>::new(problem, settings)?;
        let trace = trace(&mut solver, problem, reference, longest);
        solver.certify();
        let mut row =
            row(name, problem, if problem.sided() == Sided::One { "admm-one" } else { "admm-two" });
        row.precision = T::NAME;
        row.start = Some(start_name(*start));
        fill(&mut row, problem, reference, &trace);
        add_solution(&mut row, reference, &solver.best());
        let over = if T::NAME == "f32" { 1e-6 } else { 1e-12 };
        row.feasible = trace.most_used <= 1.0 + over;
        output.row(&row)?;
    }
    Ok(())
}

fn direct(output: &Output, name: &str, problem: &Problem, reference: &Reference) -> Result<()> {
    let begin = Instant::now();
    let solution = match solve_exactly(problem) {
        Ok((solution, _)) => solution,
        Err(ProblemError::NotOneSided) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let elapsed = begin.elapsed();
    let mut row = row(name, problem, "direct");
    let mut trace = Trace { elapsed, ..Trace::default() };
    trace.add(reference, problem.alpha, solution.objective.value(), solution.most_used);
    fill(&mut row, problem, reference, &trace);
    // No round is needed, and none is counted.
    (row.iterations, row.iterations_999, row.iterations_1e6) = (Some(0), Some(0), Some(0));
    add_solution(&mut row, reference, &solution);
    row.feasible = solution.most_used <= 1.0 + 1e-12;
    output.row(&row)
}
