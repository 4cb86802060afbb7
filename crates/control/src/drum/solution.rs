//! What a solve ends with.
use super::model::{Model, Objective};
use super::problem::{Problem, ProblemError};
use super::recover::{Allocation, Recovery};
use super::state::Residuals;
use std::num::NonZero;

/// How a solve ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The certificate is within the gap that was asked for.
    Solved,
    /// It is not, and both residuals are as small as was asked for.
    Calm,
    /// It is within 50 times that gap, and the iterations are used up.
    AlmostSolved,
    /// The iterations are used up.
    IterationLimit,
    /// A number left the range of its type; the allocation is the best found before.
    NumericalError,
}

impl Status {
    /// Name as reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Solved => "solved",
            Self::Calm => "calm",
            Self::AlmostSolved => "almost_solved",
            Self::IterationLimit => "iteration_limit",
            Self::NumericalError => "numerical_error",
        }
    }
}

/// Rates that fit every capacity, with what is known about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// How it ended.
    pub status: Status,
    /// Rate of each application in Mops, host by host; 0 where there is none.
    pub x: Vec<f64>,
    /// Completions of each application in Mops; 0 where none arise.
    pub z: Vec<f64>,
    /// What it is worth.
    pub objective: Objective,
    /// What no allocation can exceed.
    pub bound: f64,
    /// Largest use of a capacity, as a fraction of it.
    pub most_used: f64,
    /// Iterations that were done.
    pub iterations: usize,
    /// Residuals of the last one.
    pub residuals: Residuals,
}

impl Solution {
    /// Returns by how much the optimum can exceed this, as a fraction of the objective's magnitude.
    #[must_use]
    pub fn certified_gap(&self) -> f64 {
        certified_gap(self.bound, &self.objective)
    }
}

pub(super) fn certified_gap(bound: f64, objective: &Objective) -> f64 {
    let gap = (bound - objective.value()) / objective.magnitude.max(f64::MIN_POSITIVE);
    if gap.is_nan() { f64::INFINITY } else { gap.max(0.0) }
}

/// Prices of one host's capacities, in utility per Mops.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostPrices {
    /// Of what is sent.
    pub send: f64,
    /// Of completions.
    pub complete: f64,
}

impl HostPrices {
    /// Prices of the problem from those of the model: utility over rate.
    pub(super) fn of(model: &Model, (send, complete): (f64, f64)) -> Self {
        let back = model.scale.powf(-model.alpha);
        Self { send: send * back, complete: complete * back }
    }
}

/// Fits rates into capacities, as the solver does after an iteration.
#[derive(Clone, Debug)]
pub struct Fitter {
    model: Model,
    recovery: Recovery,
}

impl Fitter {
    /// Checks a problem.
    ///
    /// # Errors
    /// As [`Problem::check`].
    pub fn new(problem: &Problem) -> Result<Self, ProblemError> {
        let model = Model::new(problem, NonZero::<usize>::MIN)?;
        let recovery = Recovery::new(&model);
        Ok(Self { model, recovery })
    }

    /// Fits rates in Mops, host by host, and returns what the result is worth. What is not a positive
    /// number is taken as the least that a host gives.
    pub fn fit(&mut self, rates: &[f64]) -> Objective {
        let scale = self.model.scale;
        let rates = self.model.layout.senders.iter().map(|sender| rates[*sender as usize] / scale);
        self.recovery.recover(&self.model, rates);
        self.model.objective(&self.recovery.x, &self.recovery.z)
    }

    /// Largest use of a capacity by the fitted rates, as a fraction of it.
    #[must_use]
    pub fn most_used(&self) -> f64 {
        self.recovery.most_used
    }
}

/// Puts together what is known: rates in the units of the problem, and how it ended; `ended` is why there were no more
/// iterations, if not by the certificate.
pub(super) fn assemble(
    model: &Model,
    best: &Allocation,
    bound: f64,
    enough: f64,
    done: (usize, Residuals),
    ended: Status,
) -> Solution {
    let objective = model.objective(&best.x, &best.z);
    let gap = certified_gap(bound, &objective);
    let status = if gap <= enough {
        Status::Solved
    } else if ended == Status::IterationLimit && gap <= 50.0 * enough {
        Status::AlmostSolved
    } else {
        ended
    };
    let spread = |members: &[u32], values: &[f64]| {
        let mut all = vec![0.0; model.layout.hosts * model.layout.applications];
        for (member, value) in members.iter().zip(values) {
            all[*member as usize] = value * model.scale;
        }
        all
    };
    Solution {
        status,
        x: spread(&model.layout.senders, &best.x),
        z: spread(&model.layout.receivers, &best.z),
        objective,
        bound,
        most_used: best.most_used,
        iterations: done.0,
        residuals: done.1,
    }
}
