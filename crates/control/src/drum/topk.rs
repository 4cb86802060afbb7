//! Which applications of a host get queue pairs of their own.
//!
//! At most `k` of a host may exceed a small rate. The choice is combinatorial: the paper's Lemma 1, by
//! which it would be part of the convex problem, does not hold. So it is made apart, by a [`Selector`],
//! and the problem is solved for the chosen set.
use super::direct::exact_response;
use super::exact::solve_exactly;
use super::problem::{Coupling, Problem, ProblemError, Sided};
use super::solution::{HostPrices, Solution};
use super::solver::{Settings, Solver};
use super::utility::{marginal, utility};
use thiserror::Error;

/// Times that a set is chosen anew from the scores of the one before.
const ROUNDS: usize = 6;
/// Members and others that are swapped in trial.
const SWAPS: usize = 3;
/// Problems that are solved for one choice, roughly at most.
const MOST_SOLVES: usize = 120;

/// The applications of one host, as selectors see them.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// Weights; 0 where there is no application.
    pub weights: &'a [f64],
    /// When each came, in any unit; earlier is smaller.
    pub arrivals: &'a [u64],
    /// What each wants to send next, in bytes.
    pub sizes: &'a [f64],
    /// What each would gain by exceeding its floor at the current prices; `None` before the first solve.
    pub scores: Option<&'a [f64]>,
}

/// Chooses `k` applications of a host.
pub trait Selector {
    /// Name as reports have it.
    fn name(&self) -> &'static str;

    /// How much application `at` should be chosen; the largest are.
    fn rank(&self, host: usize, candidates: &Candidates<'_>, at: usize) -> f64;

    /// Whether ranks depend on scores, so that choosing again can help.
    fn uses_scores(&self) -> bool {
        false
    }

    /// Returns the chosen, in ascending order.
    fn select(&self, host: usize, candidates: &Candidates<'_>, k: usize) -> Vec<usize> {
        let exist = |at: &usize| candidates.weights[*at] > 0.0;
        let mut ranked: Vec<(f64, usize)> = (0..candidates.weights.len())
            .filter(exist)
            .map(|at| (self.rank(host, candidates, at), at))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut chosen: Vec<usize> = ranked.into_iter().take(k).map(|(_, at)| at).collect();
        chosen.sort_unstable();
        chosen
    }
}

/// By what each would gain at the current prices; by weight before these are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score;

/// The heaviest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight;

/// The earliest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

/// Who wants to send least.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallestFirst;

impl Selector for Score {
    fn name(&self) -> &'static str {
        "score"
    }

    fn rank(&self, _host: usize, candidates: &Candidates<'_>, at: usize) -> f64 {
        candidates.scores.unwrap_or(candidates.weights)[at]
    }

    fn uses_scores(&self) -> bool {
        true
    }
}

impl Selector for Weight {
    fn name(&self) -> &'static str {
        "weight"
    }

    fn rank(&self, _host: usize, candidates: &Candidates<'_>, at: usize) -> f64 {
        candidates.weights[at]
    }
}

impl Selector for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn rank(&self, _host: usize, candidates: &Candidates<'_>, at: usize) -> f64 {
        -(candidates.arrivals[at] as f64)
    }
}

impl Selector for SmallestFirst {
    fn name(&self) -> &'static str {
        "smallest"
    }

    fn rank(&self, _host: usize, candidates: &Candidates<'_>, at: usize) -> f64 {
        -candidates.sizes[at]
    }
}

/// In turn, so that nobody starves: by the marginal utility of the mean rate so far.
#[derive(Clone, Debug)]
pub struct Rotation {
    alpha: f64,
    applications: usize,
    means: Vec<f64>,
}

impl Rotation {
    /// What the newest rates count in the mean.
    const NEWEST: f64 = 0.02;

    /// Begins with the same mean for all.
    #[must_use]
    pub fn new(problem: &Problem) -> Self {
        let applications = problem.applications;
        let mean = |at: usize| problem.send_capacity[at / applications] / applications as f64;
        let means = (0..problem.weights.len()).map(mean).collect();
        Self { alpha: problem.alpha, applications, means }
    }

    /// Takes the rates of a period into the means, host by host.
    pub fn observe(&mut self, rates: &[f64]) {
        for (mean, rate) in self.means.iter_mut().zip(rates) {
            *mean += Self::NEWEST * (rate - *mean);
        }
    }
}

impl Selector for Rotation {
    fn name(&self) -> &'static str {
        "rotation"
    }

    fn rank(&self, host: usize, candidates: &Candidates<'_>, at: usize) -> f64 {
        candidates.weights[at] * marginal(self.alpha, self.means[host * self.applications + at])
    }
}

/// Who is chosen on every host, and what that is worth.
#[derive(Clone, Debug)]
pub struct Choice {
    /// For each host, the chosen in ascending order.
    pub active: Vec<Vec<usize>>,
    /// Rates for this choice.
    pub solution: Solution,
    /// What no choice can exceed.
    pub bound: f64,
    /// Problems that were solved.
    pub solves: usize,
}

/// Why no choice could be made.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The problem cannot be solved.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// A number for each application is missing.
    #[error("{what} has {length} values, and {expected} are needed")]
    Length {
        /// Which array.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The length that it must have.
        expected: usize,
    },
}

/// The choice of at most `k` applications of each host.
#[derive(Clone, Debug)]
pub struct TopK<'a> {
    problem: &'a Problem,
    k: usize,
    /// Most that those not chosen get, in Mops.
    floors: Vec<f64>,
    arrivals: Vec<u64>,
    sizes: Vec<f64>,
}

impl<'a> TopK<'a> {
    /// `floors`: what those not chosen get at most, in Mops; `arrivals`, `sizes` as in [`Candidates`].
    /// All have `hosts * applications` values.
    ///
    /// # Errors
    /// As [`Problem::check`], and [`ChoiceError::Length`].
    pub fn new(
        problem: &'a Problem,
        k: usize,
        floors: Vec<f64>,
        arrivals: Vec<u64>,
        sizes: Vec<f64>,
    ) -> Result<Self, ChoiceError> {
        problem.check()?;
        let expected = problem.weights.len();
        for (what, length) in
            [("floors", floors.len()), ("arrivals", arrivals.len()), ("sizes", sizes.len())]
        {
            if length != expected {
                return Err(ChoiceError::Length { what, length, expected });
            }
        }
        Ok(Self { problem, k, floors, arrivals, sizes })
    }

    fn select(&self, selector: &dyn Selector, scores: Option<&[f64]>) -> Vec<Vec<usize>> {
        let m = self.problem.applications;
        let of = |host: usize| host * m..(host + 1) * m;
        let candidates = |host: usize| Candidates {
            weights: &self.problem.weights[of(host)],
            arrivals: &self.arrivals[of(host)],
            sizes: &self.sizes[of(host)],
            scores: scores.map(|scores| &scores[of(host)]),
        };
        (0..self.problem.hosts)
            .map(|host| selector.select(host, &candidates(host), self.k))
            .collect()
    }

    /// Solves for a given choice; returns the rates and every host's prices.
    ///
    /// # Errors
    /// As [`Problem::check`].
    pub fn solve(
        &self,
        active: &[Vec<usize>],
    ) -> Result<(Solution, Vec<HostPrices>), ProblemError> {
        let mut limits = self.floors.clone();
        for (host, active) in active.iter().enumerate() {
            for at in active {
                let at = host * self.problem.applications + at;
                // Nobody can send more than the host; where there is no limit this is none.
                let capacity = self.problem.send_capacity[host];
                let share =
                    self.problem.send_preemption.as_ref().map_or(1.0, |cone| cone.reserved[at]);
                limits[at] = self
                    .problem
                    .limits
                    .as_ref()
                    .map_or(2.0 * capacity / share, |limits| limits[at]);
            }
        }
        let problem = Problem { limits: Some(limits), ..self.problem.clone() };
        match solve_exactly(&problem) {
            Err(ProblemError::NotOneSided) => {
                let settings = Settings { gap: 1e-6, iterations: 300, ..Settings::default() };
                let mut solver = Solver::<f64>::new(&problem, settings)?;
                Ok((solver.solve(), solver.prices()))
            }
            solved => solved,
        }
    }

    /// Chooses by a selector; one that uses scores chooses again while that is new, at prices damped
    /// by a half, and the best set is kept. Single swaps are tried at last.
    ///
    /// # Errors
    /// As [`Problem::check`].
    pub fn choose(&self, selector: &dyn Selector) -> Result<Choice, ProblemError> {
        let mut active = self.select(selector, None);
        let mut seen: Vec<Vec<Vec<usize>>> = Vec::new();
        let mut best: Option<(Vec<Vec<usize>>, Solution, Vec<HostPrices>)> = None;
        let mut damped: Vec<HostPrices> = Vec::new();
        let mut bound = f64::INFINITY;
        while !seen.contains(&active) && seen.len() < ROUNDS {
            seen.push(active.clone());
            let (solution, prices) = self.solve(&active)?;
            damp(&mut damped, &prices);
            let scores = self.scores(&damped, &solution);
            bound = bound.min(self.bound(&prices));
            if best.as_ref().is_none_or(|best| is_better(&solution, &best.1)) {
                best = Some((active, solution, prices));
            }
            if !selector.uses_scores() {
                break;
            }
            active = self.select(selector, Some(&scores));
        }
        let mut solves = seen.len();
        let Some((mut active, mut solution, mut prices)) = best else {
            return Err(ProblemError::NotOneSided);
        };
        if selector.uses_scores() {
            for host in 0..self.problem.hosts {
                while solves < MOST_SOLVES
                    && let Some((swapped, better, new)) =
                        self.swap(host, &active, &solution, &prices, &mut solves)?
                {
                    (active, solution, prices) = (swapped, better, new);
                    bound = bound.min(self.bound(&prices));
                }
            }
        }
        Ok(Choice { active, solution, bound, solves })
    }

    /// Tries the least of the members for the best of the others.
    #[allow(clippy::type_complexity, reason = "what `solve` returns, with its set")]
    fn swap(
        &self,
        host: usize,
        active: &[Vec<usize>],
        solution: &Solution,
        prices: &[HostPrices],
        solves: &mut usize,
    ) -> Result<Option<(Vec<Vec<usize>>, Solution, Vec<HostPrices>)>, ProblemError> {
        let m = self.problem.applications;
        let scores = &self.scores(prices, solution)[host * m..(host + 1) * m];
        let mut members = active[host].clone();
        let exists = |at: &usize| self.problem.weights[host * m + at] > 0.0;
        let mut others: Vec<usize> =
            (0..m).filter(|at| !members.contains(at)).filter(exists).collect();
        members.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        others.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        for out in members.iter().take(SWAPS) {
            for into in others.iter().take(SWAPS) {
                let mut trial = active.to_vec();
                trial[host].retain(|at| at != out);
                trial[host].push(*into);
                trial[host].sort_unstable();
                let (better, prices) = self.solve(&trial)?;
                *solves += 1;
                if is_better(&better, solution) {
                    return Ok(Some((trial, better, prices)));
                }
            }
        }
        Ok(None)
    }

    /// What each would gain by exceeding its floor, others' completions being as they are.
    fn scores(&self, prices: &[HostPrices], solution: &Solution) -> Vec<f64> {
        let problem = self.problem;
        let mut edges: Vec<Vec<usize>> = vec![Vec::new(); problem.weights.len()];
        problem
            .edges
            .from
            .iter()
            .enumerate()
            .for_each(|(edge, from)| edges[*from as usize].push(edge));
        let score = |at: usize| {
            let weight = problem.weights[at];
            if weight == 0.0 {
                return 0.0;
            }
            let app = Application { problem, solution, prices, edges: &edges[at], at, weight };
            let floor = self.floors[at];
            let best = app.best();
            if best <= floor { 0.0 } else { app.worth(best) - app.worth(floor) }
        };
        (0..problem.weights.len()).map(score).collect()
    }

    /// What no choice can exceed, by the capacities' prices; infinite where hosts depend on each other.
    fn bound(&self, prices: &[HostPrices]) -> f64 {
        let problem = self.problem;
        let linear = problem.send_preemption.is_none() && problem.completion_preemption.is_none();
        if problem.sided() == Sided::Two || !linear || problem.coupling == Coupling::AtLeast {
            return f64::INFINITY;
        }
        let mut total = 0.0;
        let mut gains: Vec<Vec<f64>> = vec![Vec::new(); problem.hosts];
        for (edge, from) in problem.edges.from.iter().enumerate() {
            let at = *from as usize;
            let (host, weight) = (at / problem.applications, problem.weights[at]);
            let share = problem.edges.completions[edge];
            let beta = problem.beta[host] / (share * share);
            let price = prices[host].send + prices[host].complete * share;
            let worth =
                |x: f64| weight * utility(problem.alpha, x) - beta * marginal(2.0, x) - price * x;
            let best = exact_response(problem.alpha, weight, beta, price);
            let best = best.min(problem.limits.as_ref().map_or(f64::INFINITY, |limits| limits[at]));
            let low = best.min(self.floors[at]);
            total += worth(low);
            gains[host].push(worth(best) - worth(low));
        }
        for (host, mut gains) in gains.into_iter().enumerate() {
            gains.sort_by(|a, b| b.total_cmp(a));
            total += gains.into_iter().take(self.k).sum::<f64>();
            total += prices[host].send * problem.send_capacity[host];
            total += prices[host].complete * problem.completion_capacity[host];
        }
        if total.is_nan() { f64::INFINITY } else { total }
    }
}

fn is_better(solution: &Solution, than: &Solution) -> bool {
    let least = 1e-12 * than.objective.magnitude;
    solution.objective.value() > than.objective.value() + least
}

fn damp(damped: &mut Vec<HostPrices>, prices: &[HostPrices]) {
    if damped.is_empty() {
        damped.extend_from_slice(prices);
        return;
    }
    for (damped, new) in damped.iter_mut().zip(prices) {
        damped.send = 0.5 * (damped.send + new.send);
        damped.complete = 0.5 * (damped.complete + new.complete);
    }
}

/// One application against fixed prices and others' completions.
struct Application<'a> {
    problem: &'a Problem,
    solution: &'a Solution,
    prices: &'a [HostPrices],
    edges: &'a [usize],
    at: usize,
    weight: f64,
}

impl Application<'_> {
    /// For each edge: completions per unit, beta, price, and what others send there.
    fn edges(&self) -> impl Iterator<Item = (f64, f64, f64, f64)> + '_ {
        self.edges.iter().map(|edge| {
            let edges = &self.problem.edges;
            let (to, share) = (edges.to[*edge] as usize, edges.completions[*edge]);
            let host = to / self.problem.applications;
            let own = share * self.solution.x[self.at];
            let others = (self.solution.z[to] - own).max(0.0);
            // What is left by rounding is nobody's.
            let others = if others < 1e-9 * own { 0.0 } else { others };
            (share, self.problem.beta[host], self.prices[host].complete, others)
        })
    }

    fn cost(&self) -> f64 {
        let own = self.prices[self.at / self.problem.applications].send;
        own + self.edges().map(|(share, _, price, _)| share * price).sum::<f64>()
    }

    fn worth(&self, x: f64) -> f64 {
        let completions = self.edges().map(|(share, beta, _, others)| {
            let z = others + share * x;
            beta * marginal(2.0, z)
        });
        self.weight * utility(self.problem.alpha, x) - completions.sum::<f64>() - self.cost() * x
    }

    fn slope(&self, x: f64) -> f64 {
        let completions = self
            .edges()
            .map(|(share, beta, _, others)| 2.0 * beta * share * marginal(3.0, others + share * x));
        self.weight * marginal(self.problem.alpha, x) + completions.sum::<f64>() - self.cost()
    }

    /// The rate that is worth most, at most ten times what the host can send.
    fn best(&self) -> f64 {
        let capacity = self.problem.send_capacity[self.at / self.problem.applications];
        let limit = self.problem.limits.as_ref().map_or(f64::INFINITY, |limits| limits[self.at]);
        let (mut low, mut high): (f64, f64) = (1e-9 * capacity, (10.0 * capacity).min(limit));
        if self.slope(high) >= 0.0 {
            return high;
        }
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if self.slope(middle) > 0.0 { low = middle } else { high = middle }
        }
        high
    }
}
