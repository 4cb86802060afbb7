//! A checked problem in the units that it is solved in: the mean share is near 1.
use super::layout::Layout;
use super::problem::{Coupling, Preemption, Problem, ProblemError};
use super::utility::{marginal, utility};
use std::num::NonZero;

/// A capacity that holds in the worst case: its parts, over senders or receivers.
#[derive(Clone, Debug)]
pub(super) struct Cone {
    pub(super) reserved: Vec<f64>,
    pub(super) uncertain: Vec<f64>,
}

/// The part of a [`Cone`] that one host has.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConeRow<'a> {
    pub(super) reserved: &'a [f64],
    pub(super) uncertain: &'a [f64],
}

impl Cone {
    fn new(preemption: &Preemption, members: &[u32]) -> Self {
        let pick = |values: &[f64]| members.iter().map(|member| values[*member as usize]).collect();
        Self { reserved: pick(&preemption.reserved), uncertain: pick(&preemption.uncertain) }
    }

    pub(super) fn row(&self, range: std::ops::Range<usize>) -> ConeRow<'_> {
        ConeRow { reserved: &self.reserved[range.clone()], uncertain: &self.uncertain[range] }
    }
}

impl ConeRow<'_> {
    /// `||uncertain o v||`.
    pub(super) fn norm(&self, v: impl Fn(usize) -> f64) -> f64 {
        let squares = self.uncertain.iter().enumerate().map(|(at, theta)| {
            let part = theta * v(at);
            part * part
        });
        squares.sum::<f64>().sqrt()
    }

    /// Slope of the capacity in element `at` at a point `v` whose norm is `norm`: a valid relaxation
    /// wherever the point is.
    pub(super) fn tangent(&self, at: usize, v: f64, norm: f64) -> f64 {
        let theta = self.uncertain[at];
        self.reserved[at] + if norm > 0.0 { theta * theta * v / norm } else { 0.0 }
    }
}

/// What `count` rates of a host use of its capacity.
pub(super) fn used(cone: Option<ConeRow<'_>>, count: usize, v: impl Fn(usize) -> f64) -> f64 {
    let Some(cone) = cone else { return (0..count).map(v).sum() };
    let mean: f64 = cone.reserved.iter().enumerate().map(|(at, share)| share * v(at)).sum();
    mean + cone.norm(v)
}

/// A problem, scaled, over the applications that exist.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) layout: Layout,
    pub(super) alpha: f64,
    pub(super) coupling: Coupling,
    /// Mops of the problem in one unit of the model, a power of 2.
    pub(super) scale: f64,
    /// Over senders.
    pub(super) weights: Vec<f64>,
    pub(super) limits: Option<Vec<f64>>,
    /// Over edges.
    pub(super) completions: Vec<f64>,
    /// Over hosts.
    pub(super) beta: Vec<f64>,
    pub(super) send_capacity: Vec<f64>,
    pub(super) completion_capacity: Vec<f64>,
    pub(super) send_cone: Option<Cone>,
    pub(super) completion_cone: Option<Cone>,
    weight_sum: f64,
}

impl Model {
    pub(super) fn new(problem: &Problem, threads: NonZero<usize>) -> Result<Self, ProblemError> {
        problem.check()?;
        let (layout, edge_ids) = Layout::new(problem, threads);
        let mean = problem.send_capacity.iter().sum::<f64>() / layout.senders.len().max(1) as f64;
        let scale = mean.log2().round().exp2();
        let down = |values: &[f64]| values.iter().map(|value| value / scale).collect::<Vec<_>>();
        let weights: Vec<f64> =
            layout.senders.iter().map(|sender| problem.weights[*sender as usize]).collect();
        let limits = problem.limits.as_ref().map(|limits| {
            layout.senders.iter().map(|sender| limits[*sender as usize] / scale).collect()
        });
        let completions =
            edge_ids.iter().map(|edge| problem.edges.completions[*edge as usize]).collect();
        let beta_scale = scale.powf(problem.alpha - 3.0);
        Ok(Self {
            alpha: problem.alpha,
            coupling: problem.coupling,
            scale,
            weight_sum: weights.iter().sum(),
            weights,
            limits,
            completions,
            beta: problem.beta.iter().map(|beta| beta * beta_scale).collect(),
            send_capacity: down(&problem.send_capacity),
            completion_capacity: down(&problem.completion_capacity),
            send_cone: problem
                .send_preemption
                .as_ref()
                .map(|cone| Cone::new(cone, &layout.senders)),
            completion_cone: problem
                .completion_preemption
                .as_ref()
                .map(|cone| Cone::new(cone, &layout.receivers)),
            layout,
        })
    }

    /// Whether every host has only its linear capacities.
    pub(super) fn is_plain(&self) -> bool {
        let linear = self.send_cone.is_none() && self.completion_cone.is_none();
        linear && self.coupling == Coupling::Equal && self.limits.is_none()
    }

    pub(super) fn send_row(&self, host: usize) -> Option<ConeRow<'_>> {
        self.send_cone.as_ref().map(|cone| cone.row(self.layout.sent_by(host)))
    }

    pub(super) fn completion_row(&self, host: usize) -> Option<ConeRow<'_>> {
        self.completion_cone.as_ref().map(|cone| cone.row(self.layout.received_by(host)))
    }

    /// Share of a capacity that element `at` of all senders or receivers reserves.
    pub(super) fn reserved(cone: &Option<Cone>, at: usize) -> f64 {
        cone.as_ref().map_or(1.0, |cone| cone.reserved[at])
    }

    /// For each sender the edge to the application itself: its completions, 0 if there is none, and its receiver.
    pub(super) fn own_edges(&self) -> Vec<(f64, u32)> {
        let layout = &self.layout;
        let receivers: Vec<u32> = (0..layout.receivers.len() as u32).collect();
        let receivers = layout.receiving.all(&receivers);
        let senders = layout.sending.all(&layout.senders);
        let mut own = vec![(0.0, 0); senders.len()];
        for (sender, edge) in layout.edges() {
            let to = receivers[layout.to[edge] as usize];
            let is_first = own[sender].0 == 0.0;
            if is_first && layout.receivers[to as usize] == senders[sender] {
                own[sender] = (self.completions[edge], to);
            }
        }
        layout.sending.all_rows(&own)
    }

    /// The parts of the objective at `x` and `z`, in the units of the problem.
    pub(super) fn objective(&self, x: &[f64], z: &[f64]) -> Objective {
        let mut objective = Objective::default();
        for (weight, x) in self.weights.iter().zip(x) {
            let term = weight * utility(self.alpha, x * self.scale);
            objective.rates += term;
            objective.magnitude += term.abs();
        }
        // beta z^-2 scales as the utility of alpha other than 1 does.
        let back = self.scale.powf(1.0 - self.alpha);
        for host in 0..self.layout.hosts {
            let beta = self.beta[host] * back;
            if beta > 0.0 {
                let range = self.layout.received_by(host);
                let sum: f64 = z[range].iter().map(|z| beta * marginal(2.0, *z)).sum();
                objective.completions -= sum;
                objective.magnitude += sum;
            }
        }
        objective.weights = self.weight_sum;
        objective
    }

    /// Returns a bound of the model in the units of the problem.
    pub(super) fn unscale(&self, bound: f64) -> f64 {
        let back = bound * self.scale.powf(1.0 - self.alpha);
        if self.alpha == 1.0 { back + self.scale.ln() * self.weight_sum } else { back }
    }
}

/// What an allocation is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// `sum w U(x)`.
    pub rates: f64,
    /// `-sum beta / z^2`.
    pub completions: f64,
    /// `sum |w U(x)| + sum beta / z^2`: what gaps are fractions of.
    pub magnitude: f64,
    /// `sum w`.
    pub weights: f64,
}

impl Objective {
    /// The objective itself.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.rates + self.completions
    }

    /// Returns by how much all rates of this optimum could be lowered, as a fraction, before it is
    /// worth only `value`. Without a unit, unlike a ratio of objectives.
    #[must_use]
    pub fn rate_loss(&self, alpha: f64, value: f64) -> f64 {
        if value >= self.value() {
            return 0.0;
        }
        let worth = |loss: f64| {
            let rest = 1.0 - loss;
            let rates = if alpha == 1.0 {
                self.rates + (-loss).ln_1p() * self.weights
            } else {
                self.rates * rest.powf(1.0 - alpha)
            };
            rates + self.completions / (rest * rest)
        };
        let (mut low, mut high) = (0.0, 1.0 - 1e-9);
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if worth(middle) > value { low = middle } else { high = middle }
        }
        high
    }
}
