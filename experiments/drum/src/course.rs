//! Rows `course`: how far each iteration is from the optimum, for the pictures of the paper (Figures 4, 5 and 6).
use crate::family::Family;
use crate::measure::{Reference, Trace, judged_start, trace};
use crate::rows::Course;
use crate::{Output, loss, subgradient};
use anyhow::Result;
use catchment_control::drum::{Problem, Settings, Solver};

/// Iterations of ours; a sub-gradient goes on.
const ITERATIONS: usize = 40;
const ALPHAS: [f64; 4] = [0.5, 1.0, 2.0, 5.0];
const SMALL: (usize, usize) = (100, 50);
const LARGE: (usize, usize) = (1000, 500);
const BETWEEN: [(usize, usize); 2] = [(100, 500), (1000, 50)];
/// Only with `--full`, as optima take long to find.
const LARGEST: [(usize, usize); 2] = [(100, 5000), (10_000, 50)];

pub(crate) fn run(output: &Output) -> Result<()> {
    for alpha in ALPHAS {
        of_ours(output, SMALL, alpha)?;
        of_losses(output, SMALL, alpha)?;
    }
    of_subgradients(output, SMALL, 1.0)?;
    for size in BETWEEN {
        of_ours(output, size, 1.0)?;
    }
    of_ours(output, LARGE, 1.0)?;
    if !output.full {
        return Ok(());
    }
    of_losses(output, LARGE, 1.0)?;
    for size in LARGEST {
        of_ours(output, size, 1.0)?;
    }
    Ok(())
}

/// Draws a problem of this size, as rows `solve` of the family do, and finds its optimum.
fn draw((n, m): (usize, usize), alpha: f64) -> Result<(Problem, Reference)> {
    let problem = Family::new(n, m, alpha, 2, 7).draw();
    let reference = Reference::find(&problem)?;
    Ok((problem, reference))
}

fn of_ours(output: &Output, size: (usize, usize), alpha: f64) -> Result<()> {
    let (problem, reference) = draw(size, alpha)?;
    let settings = Settings { start: judged_start(&problem), ..Settings::default() };
    let mut solver = Solver::<f64>::new(&problem, settings)?;
    let trace = trace(&mut solver, &problem, &reference, ITERATIONS);
    write(output, &row(size, alpha, "admm-two"), &[&trace])
}

fn of_subgradients(output: &Output, size: (usize, usize), alpha: f64) -> Result<()> {
    let (problem, reference) = draw(size, alpha)?;
    let (papers, _) = subgradient::ascend(&problem, &reference, subgradient::STEP)?;
    write(output, &row(size, alpha, "subgradient"), &[&papers])?;
    if !output.full {
        return Ok(());
    }
    let (best, _) = subgradient::sweep(&problem, &reference)?;
    write(output, &row(size, alpha, "subgradient-best"), &[&best])
}

/// Writes the worst of all seeds, for each part of messages that is lost.
fn of_losses(output: &Output, size: (usize, usize), alpha: f64) -> Result<()> {
    let (problem, reference) = draw(size, alpha)?;
    let runs = loss::runs(&problem, &reference, loss::seeds(output))?;
    for loss in loss::PARTS.into_iter().filter(|loss| *loss > 0.0) {
        let of_part = runs.iter().filter(|run| run.loss == loss);
        let traces: Vec<&Trace> = of_part.map(|run| &run.trace).collect();
        let course = Course { loss, ..row(size, alpha, "admm-two") };
        write(output, &course, &traces)?;
    }
    Ok(())
}

fn row((n, m): (usize, usize), alpha: f64, algorithm: &'static str) -> Course {
    Course { what: "course", n, m, alpha, algorithm, ..Course::default() }
}

/// Writes a row for each iteration, of later ones a row whenever they are a twentieth more: the worst of all runs.
fn write(output: &Output, course: &Course, runs: &[&Trace]) -> Result<()> {
    let most = |values: fn(&Trace) -> &Vec<f64>, at: usize| {
        let all = runs.iter().filter_map(|run| values(run).get(at).copied());
        all.reduce(f64::max)
    };
    let mut iteration = 1;
    while let Some(gap) = most(|run| &run.gaps, iteration - 1) {
        output.row(&Course {
            iteration,
            gap_rel: gap,
            below_optimum_fraction: most(|run| &run.worse, iteration - 1).unwrap_or(gap),
            runs: runs.len(),
            ..course.clone()
        })?;
        iteration = if iteration < ITERATIONS { iteration + 1 } else { iteration * 21 / 20 };
    }
    Ok(())
}
