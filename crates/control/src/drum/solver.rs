//! The central solver: rounds of all hosts until a certificate says that it is enough.
use super::bound::Bound;
use super::layout::Layout;
use super::model::{Model, Objective};
use super::problem::{Problem, ProblemError, Sided};
use super::real::Real;
use super::recover::{Allocation, Recovery};
use super::solution::{HostPrices, Solution, Status, assemble, certified_gap};
use super::start::{self, Start};
use super::state::{Lost, Residuals, Rounds};
use super::utility::with_power;
use std::collections::BTreeMap;
use std::num::NonZero;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Where to begin.
    pub start: Start,
    /// Certified gap that is enough, as a fraction of [`Objective::magnitude`].
    pub gap: f64,
    /// The paper's rule, which also ends a solve: both [`Residuals`] are at most this for each application that has a
    /// rate, in the solver's unit, the power of two that is nearest to the mean of the capacities. How far the optimum may
    /// be then, the certificate says.
    pub residual: Option<f64>,
    /// Most iterations.
    pub iterations: usize,
    /// Most threads: each does the steps of some hosts. What comes out does not depend on their number, and with one
    /// alone no iteration allocates. A problem with few edges takes fewer.
    pub threads: NonZero<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        let threads = NonZero::<usize>::MIN;
        Self { start: Start::Local, gap: 1e-3, residual: None, iterations: 200, threads }
    }
}

/// Which messages of a round are lost: asked once for each ordered pair of hosts that share an edge,
/// for the message (`false`) and the reply (`true`).
pub type Loss<'a> = &'a mut dyn FnMut(usize, usize, bool) -> bool;

/// Ordered pairs of hosts that share an edge, in the order of their first edges.
#[derive(Clone, Debug, Default)]
struct Pairs {
    hosts: Vec<(usize, usize)>,
    of_edge: Vec<u32>,
}

impl Pairs {
    fn new(layout: &Layout) -> Self {
        let mut known = BTreeMap::new();
        let mut pairs = Self::default();
        let senders: Vec<u32> = layout.sending.all(&layout.senders);
        let receivers: Vec<u32> = layout.receiving.all(&layout.receivers);
        let host_of = |application: u32| application as usize / layout.applications;
        for (sender, edge) in layout.edges() {
            let receiver = receivers[layout.to[edge] as usize];
            let hosts = (host_of(senders[sender]), host_of(receiver));
            let pair = *known.entry(hosts).or_insert_with(|| {
                pairs.hosts.push(hosts);
                pairs.hosts.len() as u32 - 1
            });
            pairs.of_edge.push(pair);
        }
        pairs
    }
}

/// Distributed ADMM over all hosts (DRUM, Algorithm 1 where hosts do not depend on each other, else
/// Algorithm 2), with iterates of type `T`.
#[derive(Clone, Debug)]
pub struct Solver<T> {
    model: Model,
    rounds: Rounds<T>,
    /// None before messages are lost.
    pairs: Pairs,
    recovery: Recovery,
    bounds: Bound,
    /// The best so far.
    best: Allocation,
    objective: Objective,
    bound: f64,
    settings: Settings,
    residuals: Residuals,
    iterations: usize,
}

impl<T: Real> Solver<T> {
    /// Checks and scales a problem, and finds where to begin.
    ///
    /// # Errors
    /// As [`Problem::check`].
    pub fn new(problem: &Problem, settings: Settings) -> Result<Self, ProblemError> {
        let model = Model::new(problem, settings.threads)?;
        let mut recovery = Recovery::new(&model);
        let point = start::point(&model, settings.start, &mut recovery);
        let objective = model.objective(&recovery.x, &recovery.z);
        let rounds = Rounds::new(&model, &point, &mut recovery.flow);
        let bounds = Bound::new(&model);
        let residuals = Residuals::default();
        let mut solver = Self {
            model,
            rounds,
            pairs: Pairs::default(),
            best: Allocation::of(&recovery),
            recovery,
            bounds,
            objective,
            bound: f64::INFINITY,
            settings,
            residuals,
            iterations: 0,
        };
        // Alone, hosts begin at their optimum; others have to hear of each other first.
        if solver.model.layout.one_sided {
            solver.certify();
        }
        Ok(solver)
    }

    /// Changes the problem and goes on from where the solver stands, as a new epoch.
    ///
    /// Applications, edges and hosts must be the same; weights, capacities, limits, completions and
    /// `beta` may differ.
    ///
    /// # Errors
    /// As [`Problem::check`], and [`ProblemError::Length`] if there are other applications or edges.
    pub fn change(&mut self, problem: &Problem) -> Result<(), ProblemError> {
        let model = Model::new(problem, self.settings.threads)?;
        let same = [
            ("senders", model.layout.senders.len(), self.model.layout.senders.len()),
            ("receivers", model.layout.receivers.len(), self.model.layout.receivers.len()),
            ("edges", model.layout.edge_count(), self.model.layout.edge_count()),
            ("hosts", model.layout.hosts, self.model.layout.hosts),
        ];
        for (what, length, expected) in same {
            if length != expected {
                return Err(ProblemError::Length { what, length, expected });
            }
        }
        let mut point = self.rounds.carry(&self.model, &model);
        self.model = model;
        point.answer(&self.model, &mut self.recovery.flow, &mut self.bounds);
        self.recovery.recover(&self.model, point.x.iter().copied());
        point.follow(&self.model, &self.recovery);
        self.rounds = Rounds::new(&self.model, &point, &mut self.recovery.flow);
        let objective = self.model.objective(&self.recovery.x, &self.recovery.z);
        self.keep(objective);
        self.bound = f64::INFINITY;
        self.certify();
        Ok(())
    }

    /// Moves every host once. The rates fit only after [`Self::recover`].
    pub fn iterate(&mut self) -> Residuals {
        self.iterate_losing(None)
    }

    fn iterate_losing(&mut self, lost: Option<&Lost>) -> Residuals {
        let (model, rounds) = (&self.model, &mut self.rounds);
        self.residuals = with_power!(model.alpha, power => rounds.round(model, power, lost));
        self.iterations += 1;
        self.residuals
    }

    /// As [`Self::iterate`], with messages lost as `loss` says.
    pub fn iterate_with_loss(&mut self, loss: Loss<'_>) -> Residuals {
        if !self.rounds.expects_losses() {
            self.rounds.expect_losses(&self.model);
            self.pairs = Pairs::new(&self.model.layout);
        }
        let lost = self.draw(loss);
        self.iterate_losing(Some(&lost))
    }

    fn draw(&self, loss: Loss<'_>) -> Lost {
        let drawn = self.pairs.hosts.iter().map(|&(from, to)| {
            let own = from == to;
            (!own && loss(from, to, false), !own && loss(to, from, true))
        });
        let drawn: Vec<(bool, bool)> = drawn.collect();
        let of_edges = || self.pairs.of_edge.iter().map(|pair| drawn[*pair as usize]);
        Lost {
            messages: of_edges().map(|(message, _)| message).collect(),
            replies: of_edges().map(|(_, reply)| reply).collect(),
        }
    }

    /// Recovers rates that fit from the current ones, and returns what they are worth. The best so far
    /// is kept.
    pub fn recover(&mut self) -> Objective {
        self.recovery.recover(&self.model, self.rounds.x.iter().map(|x| x.wide()));
        let objective = self.model.objective(&self.recovery.x, &self.recovery.z);
        let value = objective.value();
        if value.is_finite()
            && (value > self.objective.value() || !self.objective.value().is_finite())
        {
            self.keep(objective);
        }
        objective
    }

    fn keep(&mut self, objective: Objective) {
        self.best.take(&self.recovery);
        self.objective = objective;
    }

    /// Largest use of a capacity by the last recovered rates, as a fraction of it.
    #[must_use]
    pub fn most_used(&self) -> f64 {
        self.recovery.most_used
    }

    /// Bounds the optimum at the current prices; the least bound so far is returned.
    pub fn certify(&mut self) -> f64 {
        let (model, rounds) = (&self.model, &self.rounds);
        let bound = self.bounds.bound(
            model,
            &mut self.recovery.flow,
            |to| rounds.y[to].wide(),
            |sender| rounds.x[sender].wide(),
            |to| rounds.z[to].wide(),
            |host| (rounds.sending[host].linear, rounds.completing[host].linear),
        );
        self.bound = self.bound.min(model.unscale(bound));
        self.bound
    }

    /// Iterates until the gap is certified, residuals are as small as was asked for, or the iterations are used up.
    pub fn solve(&mut self) -> Solution {
        let mut ends = self.enough();
        let mut broken = false;
        let end = self.iterations + self.settings.iterations;
        while !ends && !broken && self.iterations < end {
            broken = !self.iterate().relative.is_finite();
            ends = self.is_calm();
            if ends || is_check(self.iterations) || self.iterations == end {
                self.recover();
                self.certify();
                ends |= self.enough();
            }
        }
        self.solution(broken)
    }

    /// Whether both residuals are as small as was asked for; before the first iteration there are none.
    fn is_calm(&self) -> bool {
        let Residuals { primal, dual, .. } = self.residuals;
        let most = |each: f64| each * self.model.layout.senders.len() as f64;
        let is_small = |each: f64| primal <= most(each) && dual <= most(each);
        self.iterations > 0 && self.settings.residual.is_some_and(is_small)
    }

    fn enough(&self) -> bool {
        certified_gap(self.bound, &self.objective) <= self.settings.gap
    }

    /// Returns the best allocation so far.
    #[must_use]
    pub fn best(&self) -> Solution {
        self.solution(!self.residuals.relative.is_finite())
    }

    fn solution(&self, broken: bool) -> Solution {
        let done = (self.iterations, self.residuals);
        let ended = match (broken, self.is_calm()) {
            (true, _) => Status::NumericalError,
            (false, true) => Status::Calm,
            (false, false) => Status::IterationLimit,
        };
        assemble(&self.model, &self.best, self.bound, self.settings.gap, done, ended)
    }

    /// Returns the prices of every host's capacities at the current point.
    #[must_use]
    pub fn prices(&self) -> Vec<HostPrices> {
        let pairs = self.rounds.sending.iter().zip(&self.rounds.completing);
        pairs.map(|pair| HostPrices::of(&self.model, (pair.0.linear, pair.1.linear))).collect()
    }

    /// Which algorithm this problem takes.
    #[must_use]
    pub fn sided(&self) -> Sided {
        if self.model.layout.one_sided { Sided::One } else { Sided::Two }
    }

    /// Passes over rates and over completions, for each host of the last iteration on average.
    #[must_use]
    pub fn passes(&self) -> [f64; 2] {
        self.rounds.passes.map(|passes| passes as f64 / self.model.layout.hosts as f64)
    }
}

/// Certificates are made at iterations 4, 6, 8, 10, then at every fifth.
fn is_check(iteration: usize) -> bool {
    if iteration <= 10 {
        iteration >= 4 && iteration.is_multiple_of(2)
    } else {
        iteration.is_multiple_of(5)
    }
}
