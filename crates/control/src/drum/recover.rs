//! From any positive rates to rates that fit every capacity.
use super::model::{Model, used};
use super::problem::Coupling;
use super::utility::{Power, Three, exp2_below_one, log2_above_one, with_power};

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
    /// Over senders: 1 over the marginal utility, and how the rate falls as it rises.
    inverse_marginals: Vec<f64>,
    answers: Vec<Answer>,
    /// Over receivers: marginal utility of a completion, later by how much its price rises (below 0
    /// where nothing is to be found), or the factor of its host; slopes of the load.
    worth: Vec<f64>,
    slopes: Vec<f64>,
    /// Over hosts: the load that is near enough.
    enough: Vec<f64>,
    over: Vec<bool>,
}

/// How a sender lowers its rate when its marginal utility has to rise by a factor.
///
/// The marginal utility is a sum, `A t^-alpha + B t^-3` of what it was at a rate `t` times as high. At
/// first the rate falls by its elasticity; far away it falls as the steeper of the two alone would let
/// it, which never is too far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    /// `1 / eta`.
    inverse_elasticity: f64,
    /// `-log2` of the steeper part, over its exponent; `1 / exponent` of it.
    offset: f64,
    steepest: f64,
}

impl Answer {
    /// `rate` and `completion` are the parts of the marginal utility.
    pub(super) fn new(alpha: f64, rate: f64, completion: f64) -> Self {
        let marginal = rate + completion;
        let (exponent, part) = if alpha < 3.0 { (3.0, completion) } else { (alpha, rate) };
        let offset = if part > 1e-12 * marginal {
            log2_above_one(marginal / part) / exponent
        } else {
            f64::INFINITY
        };
        Self {
            inverse_elasticity: marginal / (alpha * rate + 3.0 * completion),
            offset,
            steepest: 1.0 / exponent,
        }
    }

    /// As [`Self::new`], from the elasticity of the marginal utility, which tells its parts.
    pub(super) fn of_elasticity(alpha: f64, elasticity: f64) -> Self {
        let completion = if alpha == 3.0 { 0.0 } else { (elasticity - alpha) / (3.0 - alpha) };
        let completion = completion.clamp(0.0, 1.0);
        Self::new(alpha, 1.0 - completion, completion)
    }

    /// Returns the factor of the rate, and its elasticity there.
    #[inline]
    pub(super) fn at(&self, ratio: f64) -> (f64, f64) {
        let log = log2_above_one(ratio);
        let (first, far) = (log * self.inverse_elasticity, self.offset + log * self.steepest);
        if first <= far {
            (exp2_below_one(first), self.inverse_elasticity)
        } else {
            (exp2_below_one(far), self.steepest)
        }
    }
}

/// Returns how far an overloaded host raises its price next, from what its senders would use at the
/// price that it has and how that falls with the price.
///
/// A Newton step towards the root of `load^-bend`, which is nearly straight, and concave: with inverse
/// elasticities of at most `1 / bend` it is a mean of concave functions of the price, with a constant
/// elasticity of substitution. So no step goes too far.
pub(super) fn rise_step(load: f64, slope: f64, capacity: f64, bend: f64) -> f64 {
    let ratio = load / capacity;
    let power = if bend == 1.0 { ratio } else { ratio.powf(bend) };
    load * (power - 1.0) / (-slope * bend)
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
            inverse_marginals: senders(),
            answers: vec![Answer::default(); model.layout.senders.len()],
            worth: vec![0.0; model.layout.receivers.len()],
            slopes: vec![0.0; model.layout.receivers.len()],
            enough: vec![0.0; hosts],
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
        for (sender, edges) in model.layout.sweep() {
            let rises = model.layout.to[edges.clone()].iter().zip(&model.completions[edges]);
            let rise: f64 = rises.map(|(to, part)| part * self.worth[*to as usize]).sum();
            if rise > 0.0 {
                let rise = rise * self.inverse_marginals[sender];
                self.x[sender] *= self.answers[sender].at(1.0 + rise).0;
            }
        }
        model.complete(&self.x, &mut self.z);
    }

    fn find_elasticities<P: Power>(&mut self, model: &Model, power: P) {
        for host in 0..model.layout.hosts {
            let twice = 2.0 * model.beta[host];
            let range = model.layout.received_by(host);
            for (worth, z) in self.worth[range.clone()].iter_mut().zip(&self.z[range]) {
                *worth = twice * Three.of_inverse(1.0 / z);
            }
        }
        for (sender, edges) in model.layout.sweep() {
            let rate = model.weights[sender] * power.of_inverse(1.0 / self.x[sender]);
            let parts = model.layout.to[edges.clone()].iter().zip(&model.completions[edges]);
            let completion: f64 = parts.map(|(to, part)| part * self.worth[*to as usize]).sum();
            self.inverse_marginals[sender] = 1.0 / (rate + completion);
            self.answers[sender] = Answer::new(power.alpha(), rate, completion);
        }
    }

    /// Newton from no rise at all, for every host ([`rise_step`]).
    fn find_rises(&mut self, model: &Model) {
        let bend = model.alpha.min(3.0);
        for step in 0..MOST_STEPS {
            for host in 0..model.layout.hosts {
                let (over, raised) = (self.over[host], self.raised[host]);
                self.set_worth(model, host, |share| if over { share * raised } else { -1.0 });
            }
            self.load(model, step == 0);
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

    /// What overloaded hosts would complete at their prices, and how that changes with the price; at
    /// `first` no price has risen.
    fn load(&mut self, model: &Model, first: bool) {
        for host in 0..model.layout.hosts {
            if self.over[host] {
                let range = model.layout.received_by(host);
                self.z[range.clone()].fill(0.0);
                self.slopes[range].fill(0.0);
            }
        }
        for (sender, edges) in model.layout.sweep() {
            let (x, answer) = (self.x[sender], self.answers[sender]);
            let inverse = self.inverse_marginals[sender];
            for edge in edges {
                let to = model.layout.to[edge] as usize;
                let price = self.worth[to];
                if price < 0.0 {
                    continue;
                }
                let completions = model.completions[edge];
                let ratio = 1.0 + completions * price * inverse;
                let (factor, exponent) =
                    if first { (1.0, answer.inverse_elasticity) } else { answer.at(ratio) };
                let part = completions * x * factor;
                self.z[to] += part;
                self.slopes[to] -= part * exponent * completions * inverse / ratio;
            }
        }
    }

    /// What a host's completions use, and how that changes with its price.
    fn load_of(&self, model: &Model, host: usize) -> (f64, f64) {
        let cone = model.completion_row(host);
        let (mut slope, mut norm_slope) = (0.0, 0.0);
        let range = model.layout.received_by(host);
        for (at, to) in range.clone().enumerate() {
            let share = Model::reserved(&model.completion_cone, to);
            let change = self.slopes[to] * share;
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
        for (sender, edges) in model.layout.sweep() {
            let factors = model.layout.to[edges].iter().map(|to| self.worth[*to as usize]);
            self.x[sender] *= factors.fold(1.0, f64::min);
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
