//! From any positive rates to rates that fit every capacity.
use super::model::{Model, used};
use super::problem::Coupling;
use super::utility::marginal;

const MOST_STEPS: usize = 40;
/// How near the load must come to the capacity; scaling does the rest.
const NEAR: f64 = 1e-7;

/// An allocation that fits, and the buffers that it is found with.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// Over senders.
    pub(super) x: Vec<f64>,
    /// Over receivers: `P x`, or more where completions may be left unused.
    pub(super) z: Vec<f64>,
    /// Over hosts: by how much a host had to raise its price.
    pub(super) raised: Vec<f64>,
    /// Largest use of a capacity, as a fraction of it.
    pub(super) most_used: f64,
    marginals: Vec<f64>,
    /// Inverse elasticities, `1 / eta`.
    answers: Vec<f64>,
    factors: Vec<f64>,
    over: Vec<bool>,
}

/// Returns the factor by which a sender lowers its rate when its price rises.
#[inline]
fn answer(marginal: f64, rise: f64, inverse_elasticity: f64) -> f64 {
    (marginal / (marginal + rise)).powf(inverse_elasticity)
}

impl Recovery {
    pub(super) fn new(model: &Model) -> Self {
        let senders = || vec![0.0; model.layout.senders.len()];
        let hosts = model.layout.hosts;
        Self {
            x: senders(),
            z: vec![0.0; model.layout.receivers.len()],
            raised: vec![0.0; hosts],
            most_used: 0.0,
            marginals: senders(),
            answers: senders(),
            factors: vec![1.0; hosts],
            over: vec![false; hosts],
        }
    }

    /// Finds an allocation near `x` that fits: limits and senders first, then receivers by their
    /// senders' response to a price, at last by scaling.
    ///
    /// A rate that is not a positive number is taken as the least that a host gives.
    pub(super) fn recover(&mut self, model: &Model, x: impl Iterator<Item = f64>) {
        for (at, (into, x)) in self.x.iter_mut().zip(x).enumerate() {
            let limit = model.limits.as_ref().map_or(f64::INFINITY, |limits| limits[at]);
            let x = if x > 0.0 && x < 1e150 { x } else { 1e-150 };
            *into = x.min(limit);
        }
        self.fit_senders(model);
        model.complete(&self.x, &mut self.z);
        self.raised.fill(0.0);
        if self.find_overloads(model) {
            self.respond(model);
        }
        self.scale_receivers(model);
        if model.coupling == Coupling::AtLeast {
            self.leave_unused(model);
        }
        self.measure(model);
    }

    /// Takes over another's allocation.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.x.copy_from_slice(&other.x);
        self.z.copy_from_slice(&other.z);
        self.most_used = other.most_used;
    }

    fn fit_senders(&mut self, model: &Model) {
        for host in 0..model.layout.hosts {
            let row = &mut self.x[model.layout.sent_by(host)];
            let least = 1e-6 * model.send_capacity[host] / row.len().max(1) as f64;
            let limits = model.limits.as_ref().map(|limits| &limits[model.layout.sent_by(host)]);
            for (at, x) in row.iter_mut().enumerate() {
                *x = x.max(limits.map_or(least, |limits| limits[at].min(least)));
            }
            let use_of = used(model.send_row(host), row.len(), |at| row[at]);
            let fit = model.send_capacity[host] / use_of;
            if fit < 1.0 {
                row.iter_mut().for_each(|x| *x *= fit);
            }
        }
    }

    fn use_of_completions(&self, model: &Model, host: usize) -> f64 {
        let row = &self.z[model.layout.received_by(host)];
        used(model.completion_row(host), row.len(), |at| row[at])
    }

    fn find_overloads(&mut self, model: &Model) -> bool {
        for host in 0..model.layout.hosts {
            self.over[host] =
                self.use_of_completions(model, host) > model.completion_capacity[host];
        }
        self.over.contains(&true)
    }

    /// Overloaded hosts raise their prices until their load fits, if every sender answers by its own
    /// elasticity; then every sender answers to the sum of its prices.
    fn respond(&mut self, model: &Model) {
        self.find_elasticities(model);
        for host in 0..model.layout.hosts {
            if self.over[host] {
                self.raised[host] = self.find_rise(model, host);
            }
        }
        let layout = &model.layout;
        for sender in 0..self.x.len() {
            let rises = layout.out(sender).map(|edge| {
                let to = layout.to[edge] as usize;
                let raised = self.raised[layout.host_of_receiver(to)];
                model.completions[edge] * Model::reserved(&model.completion_cone, to) * raised
            });
            let rise: f64 = rises.sum();
            if rise > 0.0 {
                self.x[sender] *= answer(self.marginals[sender], rise, self.answers[sender]);
            }
        }
        model.complete(&self.x, &mut self.z);
    }

    fn find_elasticities(&mut self, model: &Model) {
        let layout = &model.layout;
        for sender in 0..self.x.len() {
            let rate = model.weights[sender] * marginal(model.alpha, self.x[sender]);
            let completion: f64 = layout
                .out(sender)
                .map(|edge| {
                    let to = layout.to[edge] as usize;
                    let beta = model.beta[layout.host_of_receiver(to)];
                    model.completions[edge] * 2.0 * beta * marginal(3.0, self.z[to])
                })
                .sum();
            self.marginals[sender] = rate + completion;
            self.answers[sender] = self.marginals[sender] / (model.alpha * rate + 3.0 * completion);
        }
    }

    /// Newton from no rise at all: the load falls and is convex, so no step goes too far.
    fn find_rise(&mut self, model: &Model, host: usize) -> f64 {
        let capacity = model.completion_capacity[host];
        let mut rise = 0.0;
        for _ in 0..MOST_STEPS {
            let (load, slope) = self.load(model, host, rise);
            let step = (capacity - load) / slope;
            if load <= capacity * (1.0 + NEAR) || !(step > 0.0 && step.is_finite()) {
                break;
            }
            rise += step;
        }
        rise
    }

    fn incoming<'a>(
        &'a self,
        model: &'a Model,
        to: usize,
    ) -> impl Iterator<Item = (usize, f64)> + 'a {
        let edges = model.layout.incoming(to).iter();
        edges.map(move |edge| {
            let edge = *edge as usize;
            (model.layout.from[edge] as usize, model.completions[edge])
        })
    }

    /// What the completions of a host would use if its price rose, and how that changes with the price.
    fn load(&mut self, model: &Model, host: usize, rise: f64) -> (f64, f64) {
        let cone = model.completion_row(host);
        let range = model.layout.received_by(host);
        let (mut slope, mut norm_slope) = (0.0, 0.0);
        for (at, to) in range.clone().enumerate() {
            let share = Model::reserved(&model.completion_cone, to);
            let (mut sum, mut change) = (0.0, 0.0);
            for (from, completions) in self.incoming(model, to) {
                let (marginal, price) = (self.marginals[from], completions * share * rise);
                let part = completions * self.x[from] * answer(marginal, price, self.answers[from]);
                sum += part;
                change -= part * self.answers[from] * completions * share / (marginal + price);
            }
            self.z[to] = sum;
            slope += share * change;
            norm_slope +=
                cone.map_or(0.0, |cone| cone.uncertain[at] * cone.uncertain[at] * sum * change);
        }
        let norm = cone.map_or(0.0, |cone| cone.norm(|at| self.z[range.start + at]));
        let slope = if norm > 0.0 { slope + norm_slope / norm } else { slope };
        (self.use_of_completions(model, host), slope)
    }

    /// What still does not fit is scaled down, by the worst of a sender's receivers.
    fn scale_receivers(&mut self, model: &Model) {
        let mut scales = false;
        for host in 0..model.layout.hosts {
            let fit = model.completion_capacity[host] / self.use_of_completions(model, host);
            self.factors[host] = if fit < 1.0 { fit } else { 1.0 };
            scales |= fit < 1.0;
        }
        if !scales {
            return;
        }
        for sender in 0..self.x.len() {
            let edges = model.layout.out(sender);
            let hosts =
                edges.map(|edge| model.layout.host_of_receiver(model.layout.to[edge] as usize));
            let factor = hosts.map(|host| self.factors[host]).fold(1.0, f64::min);
            self.x[sender] *= factor;
        }
        model.complete(&self.x, &mut self.z);
    }

    /// Spends what is left of completions where they are worth most: `z = max(P x, (2 beta / price)^(1/3))`.
    fn leave_unused(&mut self, model: &Model) {
        for host in 0..model.layout.hosts {
            let range = model.layout.received_by(host);
            let beta = model.beta[host];
            let capacity = model.completion_capacity[host] * (1.0 - 1e-15);
            let own = |at: usize| self.z[range.start + at];
            let cone = model.completion_row(host);
            if beta == 0.0 || range.is_empty() || used(cone, range.len(), own) >= capacity {
                continue;
            }
            // At `level` an application with share 1 would get `level` completions.
            let at_level = |at: usize, level: f64| {
                let share = cone.map_or(1.0, |cone| cone.reserved[at]);
                own(at).max(level / share.cbrt())
            };
            let (mut low, mut high) = (0.0, capacity);
            while used(cone, range.len(), |at| at_level(at, high)) <= capacity && high < 1e300 {
                high *= 2.0;
            }
            for _ in 0..100 {
                let level = 0.5 * (low + high);
                let fits = used(cone, range.len(), |at| at_level(at, level)) <= capacity;
                if fits { low = level } else { high = level }
            }
            for at in 0..range.len() {
                let share = cone.map_or(1.0, |cone| cone.reserved[at]);
                let given = &mut self.z[range.start + at];
                *given = given.max(low / share.cbrt());
            }
        }
    }

    fn measure(&mut self, model: &Model) {
        self.most_used = 0.0;
        for host in 0..model.layout.hosts {
            let row = &self.x[model.layout.sent_by(host)];
            let sent =
                used(model.send_row(host), row.len(), |at| row[at]) / model.send_capacity[host];
            let completed = self.use_of_completions(model, host) / model.completion_capacity[host];
            self.most_used = self.most_used.max(sent).max(completed);
        }
    }
}
