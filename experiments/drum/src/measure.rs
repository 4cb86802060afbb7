//! How far iterations are from the optimum.
use anyhow::Result;
use catchment_control::drum::{Objective, Problem, Real, Settings, Sided, Solver, Start};
use std::time::{Duration, Instant};

/// What a solution is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// The objective of the optimum, or the least bound of it.
    pub(crate) optimum: f64,
    /// Its parts.
    pub(crate) parts: Objective,
    pub(crate) x: Option<Vec<f64>>,
}

impl Reference {
    /// Finds the optimum by a long run, up to the least certified bound.
    pub(crate) fn find(problem: &Problem) -> Result<Self> {
        let settings = Settings { gap: 1e-7, iterations: 2000, ..Settings::default() };
        let solution = Solver::<f64>::new(problem, settings)?.solve();
        Ok(Self { optimum: solution.bound, parts: solution.objective, x: Some(solution.x) })
    }

    /// The gap of an objective, as a fraction of the magnitude of the optimum.
    pub(crate) fn gap(&self, value: f64) -> f64 {
        (self.optimum - value) / self.parts.magnitude
    }

    /// By how much all rates are too low, in effect.
    fn loss(&self, alpha: f64, value: f64) -> f64 {
        // The parts may be those of the best point found: the gap to the bound is added to them.
        let parts =
            Objective { rates: self.parts.rates + self.optimum - self.parts.value(), ..self.parts };
        parts.rate_loss(alpha, value)
    }
}

/// What a run of iterations was like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// Of each iteration: gap, and the worse of gap and rate loss.
    pub(crate) gaps: Vec<f64>,
    pub(crate) worse: Vec<f64>,
    pub(crate) most_used: f64,
    pub(crate) elapsed: Duration,
}

impl Trace {
    pub(crate) fn add(&mut self, reference: &Reference, alpha: f64, value: f64, most_used: f64) {
        let gap = reference.gap(value);
        let worse = gap.max(reference.loss(alpha, value));
        // What is not a number is no solution.
        let or_none = |value: f64| if value.is_nan() { f64::INFINITY } else { value };
        self.gaps.push(or_none(gap));
        self.worse.push(or_none(worse));
        self.most_used = self.most_used.max(most_used);
    }

    /// The first iteration from which on all stay within `enough`.
    pub(crate) fn first(values: &[f64], enough: f64) -> Option<usize> {
        let last = values.iter().rposition(|value| *value > enough);
        let first = last.map_or(1, |last| last + 2);
        (first <= values.len()).then_some(first)
    }

    pub(crate) fn iterations(&self) -> Option<usize> {
        Self::first(&self.worse, 0.005)
    }
}

/// The start that a problem is judged from.
pub(crate) fn judged_start(problem: &Problem) -> Start {
    if problem.sided() == Sided::One { Start::Fair } else { Start::Local }
}

pub(crate) fn start_name(start: Start) -> &'static str {
    match start {
        Start::Local => "local",
        Start::Fair => "fair",
    }
}

/// Iterates `count` times, and recovers and measures after every iteration; ends early once the
/// certificate is within 1e-10.
pub(crate) fn trace<T: Real>(
    solver: &mut Solver<T>,
    problem: &Problem,
    reference: &Reference,
    count: usize,
) -> Trace {
    let mut trace = Trace::default();
    for iteration in 1..=count {
        let start = Instant::now();
        let residuals = solver.iterate();
        trace.elapsed += start.elapsed();
        let objective = solver.recover();
        trace.add(reference, problem.alpha, objective.value(), solver.most_used());
        if iteration % 5 == 0 {
            solver.certify();
            if solver.best().certified_gap() <= 1e-10 && residuals.relative <= 1e-9 {
                break;
            }
        }
    }
    trace
}

/// Names of a problem's kind.
pub(crate) fn sided_name(problem: &Problem) -> &'static str {
    if problem.sided() == Sided::One { "one" } else { "two" }
}
