//! From any positive rates to rates that fit every capacity.
use super::answer::rise_step;
use super::flow::{Flow, add_worth};
use super::model::{Model, used};
use super::problem::Coupling;
use super::rises::{Load, Rises};
use super::utility::{Power, Three, with_power};

const MOST_STEPS: usize = 40;
/// How much of an overload may be left, and how much of a capacity: scaling does the rest.
const LEFT: f64 = 1e-3;
const NEAR: f64 = 1e-9;

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
    /// Over receivers: marginal utility of a completion, later by how much its price rises (below 0
    /// where nothing is to be found), or the factor of its host.
    worth: Vec<f64>,
    /// Over what a host has.
    loads: Vec<Load>,
    fits: Vec<f64>,
    /// Over hosts: the load that is near enough.
    enough: Vec<f64>,
    over: Vec<bool>,
    pub(super) flow: Flow,
    rises: Rises,
}

/// Rates and completions that fit, in rows.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    pub(super) x: Vec<f64>,
    pub(super) z: Vec<f64>,
    pub(super) most_used: f64,
}

impl Allocation {
    /// Copies what was recovered.
    pub(super) fn of(recovery: &Recovery) -> Self {
        let Recovery { x, z, most_used, .. } = recovery;
        Self { x: x.clone(), z: z.clone(), most_used: *most_used }
    }

    /// Copies what was recovered of the same problem, without a new buffer.
    pub(super) fn take(&mut self, recovery: &Recovery) {
        self.x.copy_from_slice(&recovery.x);
        self.z.copy_from_slice(&recovery.z);
        self.most_used = recovery.most_used;
    }
}

impl Recovery {
    pub(super) fn new(model: &Model) -> Self {
        let hosts = model.layout.hosts;
        Self {
            x: vec![0.0; model.layout.senders.len()],
            z: vec![0.0; model.layout.receivers.len()],
            raised: vec![0.0; hosts],
            most_used: 0.0,
            worth: vec![0.0; model.layout.receivers.len()],
            loads: vec![Load::default(); model.layout.widest()],
            fits: vec![0.0; model.layout.widest()],
            enough: vec![0.0; hosts],
            over: vec![false; hosts],
            flow: Flow::new(&model.layout),
            rises: Rises::new(&model.layout),
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
        self.flow.complete(model, &self.x, &mut self.z);
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

    /// Sets a value of every receiver of a host, by its share of the capacity.
    fn set_worth(&mut self, model: &Model, host: usize, value: impl Fn(f64) -> f64) {
        for to in model.layout.received_by(host) {
            self.worth[to] = value(Model::reserved(&model.completion_cone, to));
        }
    }

    /// Overloaded hosts raise their prices until their load fits, if every sender answers by its own
    /// elasticity; then every sender answers to the sum of its prices.
    fn respond(&mut self, model: &Model) {
        with_power!(model.alpha, power => self.find_elasticities(model, power));
        self.find_rises(model);
        for host in 0..model.layout.hosts {
            let raised = self.raised[host];
            self.set_worth(model, host, |share| share * raised);
        }
        self.flow.fold(model, &self.worth, 0.0, add_worth);
        self.rises.answer(&model.layout, self.flow.senders_mut(), model.alpha);
        self.flow.copy_senders(&model.layout, &mut self.x);
        self.flow.complete(model, &self.x, &mut self.z);
    }

    fn find_elasticities<P: Power>(&mut self, model: &Model, power: P) {
        for host in 0..model.layout.hosts {
            let twice = 2.0 * model.beta[host];
            let range = model.layout.received_by(host);
            for (worth, z) in self.worth[range.clone()].iter_mut().zip(&self.z[range]) {
                *worth = twice * Three.of_inverse(1.0 / z);
            }
        }
        self.flow.fold(model, &self.worth, 0.0, add_worth);
        self.rises.set(model, power, &self.x, self.flow.senders());
    }

    /// Newton from no rise at all, for every host ([`rise_step`]).
    fn find_rises(&mut self, model: &Model) {
        let bend = model.alpha.min(3.0);
        for step in 0..MOST_STEPS {
            for host in 0..model.layout.hosts {
                let (over, raised) = (self.over[host], self.raised[host]);
                self.set_worth(model, host, |share| if over { share * raised } else { -1.0 });
            }
            self.flow.copy_worth(&model.layout, &self.worth);
            self.rises.load(model, self.flow.receivers(), step == 0);
            let mut rises = false;
            for host in 0..model.layout.hosts {
                if !self.over[host] {
                    continue;
                }
                let capacity = model.completion_capacity[host];
                let (load, slope) = self.load_of(model, host);
                if step == 0 {
                    self.enough[host] =
                        (capacity * (1.0 + NEAR)).max(capacity + LEFT * (load - capacity));
                }
                let rise = rise_step(load, slope, capacity, bend);
                self.over[host] = load > self.enough[host] && rise > 0.0 && rise.is_finite();
                if self.over[host] {
                    self.raised[host] += rise;
                    rises = true;
                }
            }
            if !rises {
                break;
            }
        }
    }

    /// What a host's completions would use at its price, and how that changes with the price.
    fn load_of(&mut self, model: &Model, host: usize) -> (f64, f64) {
        let cone = model.completion_row(host);
        let (mut slope, mut norm_slope) = (0.0, 0.0);
        let range = model.layout.received_by(host);
        let loads = &mut self.loads[..range.len()];
        self.rises.row(&model.layout, range.clone(), loads);
        for (z, load) in self.z[range.clone()].iter_mut().zip(&*loads) {
            *z = load.z;
        }
        for (at, to) in range.clone().enumerate() {
            let share = Model::reserved(&model.completion_cone, to);
            let change = loads[at].slope * share;
            slope += share * change;
            norm_slope += cone
                .map_or(0.0, |cone| cone.uncertain[at] * cone.uncertain[at] * self.z[to] * change);
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
            self.set_worth(model, host, |_| if fit < 1.0 { fit } else { 1.0 });
            scales |= fit < 1.0;
        }
        if !scales {
            return;
        }
        self.flow.fold(model, &self.worth, 1.0, |least, _, fit| least.min(fit));
        for host in 0..model.layout.hosts {
            let senders = model.layout.sent_by(host);
            let fits = &mut self.fits[..senders.len()];
            model.layout.sending.to_rows(senders.clone(), self.flow.senders(), fits);
            self.x[senders].iter_mut().zip(fits).for_each(|(x, fit)| *x *= *fit);
        }
        self.flow.complete(model, &self.x, &mut self.z);
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
