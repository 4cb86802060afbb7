//! Rounds of all hosts: every sender's step, the messages, every receiver's step, the replies.
use super::fill::Price;
use super::model::Model;
use super::problem::Coupling;
use super::real::Real;
use super::start::Point;
use super::step::{
    self, Bounds, CLIP, COMPLETIONS, KAPPA, RENEWALS, Receiver, Scratch, Sender, Told,
};
use super::utility::Power;

/// What arrives of the messages of a round: for each edge whether its message, and its reply, was lost.
pub(super) struct Lost {
    pub(super) messages: Vec<bool>,
    pub(super) replies: Vec<bool>,
}

/// What a sender holds of each edge when replies can be lost, and a receiver when messages can.
#[derive(Clone, Debug)]
struct Copies<T> {
    told: Vec<Told<T>>,
    inverse: Vec<T>,
}

/// Residuals of a round (Boyd and others, Distributed Optimization and Statistical Learning via the
/// Alternating Direction Method of Multipliers, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Residuals {
    /// `||P x - z||`, its positive part where completions may be left unused.
    pub primal: f64,
    /// `||r (z - z of the round before)||`.
    pub dual: f64,
    /// The larger of both, as fractions of `||P x||`, `||z||` and of `||Y||`.
    pub relative: f64,
}

#[derive(Default)]
pub(super) struct Norms {
    pub(super) primal: f64,
    pub(super) dual: f64,
    used: f64,
    pub(super) given: f64,
    pub(super) price: f64,
}

/// The state of all hosts.
#[derive(Clone, Debug)]
pub(super) struct Rounds<T> {
    /// Over senders.
    pub(super) x: Vec<T>,
    pub(super) sending: Vec<Price>,
    /// Over receivers.
    pub(super) z: Vec<T>,
    pub(super) y: Vec<T>,
    pub(super) completing: Vec<Price>,
    /// Rounds of this epoch.
    pub(super) round: usize,
    pub(super) passes: [usize; 2],
    values: Vec<T>,
    sent: Vec<T>,
    pub(super) rho: Vec<T>,
    curvatures: Vec<T>,
    pub(super) x_floor: Vec<T>,
    pub(super) z_floor: Vec<T>,
    /// Inputs in this precision.
    pub(super) weights: Vec<T>,
    pub(super) completions: Vec<T>,
    /// Over senders: `KAPPA / sum of completions`.
    pub(super) shared: Vec<T>,
    pub(super) scratch: Scratch<T>,
    copies: Option<Copies<T>>,
}

fn narrow<T: Real>(values: &[f64]) -> Vec<T> {
    values.iter().map(|value| T::of(*value)).collect()
}

impl<T: Real> Rounds<T> {
    pub(super) fn new(model: &Model, point: &Point) -> Self {
        let layout = &model.layout;
        let shared = (0..layout.senders.len()).map(|sender| {
            let sum: f64 = layout.out(sender).map(|edge| model.completions[edge]).sum();
            T::of(KAPPA / sum.max(1e-300))
        });
        let edges = layout.edge_count();
        let mut rounds = Self {
            x: Vec::new(),
            sending: Vec::new(),
            z: Vec::new(),
            y: Vec::new(),
            completing: Vec::new(),
            round: 0,
            passes: [0; 2],
            values: vec![T::default(); edges],
            sent: vec![T::default(); edges],
            rho: vec![T::default(); edges],
            curvatures: vec![T::default(); layout.receivers.len()],
            x_floor: Vec::new(),
            z_floor: Vec::new(),
            weights: narrow(&model.weights),
            completions: narrow(&model.completions),
            shared: shared.collect(),
            scratch: Scratch::new(layout.widest()),
            copies: None,
        };
        rounds.begin(model, point);
        rounds
    }

    /// Begins an epoch at a point.
    pub(super) fn begin(&mut self, model: &Model, point: &Point) {
        let layout = &model.layout;
        self.x = narrow(&point.x);
        self.z = narrow(&point.z);
        self.y = narrow(&point.y);
        self.sending.clone_from(&point.sending);
        self.completing.clone_from(&point.completing);
        for edge in 0..layout.edge_count() {
            self.values[edge] =
                T::of(model.completions[edge] * point.x[layout.from[edge] as usize]);
        }
        self.renew(model);
    }

    /// Begins an epoch where the rounds stand: penalties are renewed from here.
    pub(super) fn renew(&mut self, model: &Model) {
        self.round = 0;
        let clip = |values: &[T]| {
            let floor = |value: &T| (T::of(CLIP) * *value).or_larger(T::of(1e-12));
            values.iter().map(floor).collect()
        };
        self.x_floor = clip(&self.x);
        self.z_floor = clip(&self.z);
        for host in 0..model.layout.hosts {
            self.curve_completions(model, host);
        }
        self.copies = None;
    }

    /// Keeps, from now on, what each side was told last, so that messages can be lost.
    pub(super) fn expect_losses(&mut self, model: &Model) {
        if model.layout.one_sided && self.is_plain(model) {
            // Rounds of a host alone have kept neither.
            self.values.copy_from_slice(&self.z);
            (0..model.layout.hosts).for_each(|host| self.curve_completions(model, host));
        }
        let edges = 0..model.layout.edge_count();
        self.copies = Some(Copies {
            told: edges.map(|edge| self.told(model, edge)).collect(),
            inverse: vec![T::default(); model.layout.edge_count()],
        });
    }

    #[inline(always)]
    fn told(&self, model: &Model, edge: usize) -> Told<T> {
        let to = model.layout.to[edge] as usize;
        Told { price: self.y[to], value: self.values[edge], curvature: self.curvatures[to] }
    }

    /// One round of every host.
    #[inline(always)]
    pub(super) fn round<P: Power>(
        &mut self,
        model: &Model,
        power: P,
        lost: Option<&Lost>,
    ) -> Residuals {
        self.round += 1;
        self.passes = [0; 2];
        let mut norms = Norms::default();
        let alone = model.layout.one_sided && self.copies.is_none() && self.is_plain(model);
        for host in 0..model.layout.hosts {
            if alone {
                self.own(model, power, host, &mut norms);
            } else {
                self.send(model, power, host);
            }
        }
        if !alone {
            for host in 0..model.layout.hosts {
                self.receive(model, host, lost, &mut norms);
            }
        }
        if let Some(lost) = lost {
            self.deliver_replies(model, lost);
        }
        let relative = (norms.primal.sqrt() / norms.used.max(norms.given).sqrt())
            .max(norms.dual.sqrt() / norms.price.sqrt().max(1e-30));
        Residuals { primal: norms.primal.sqrt(), dual: norms.dual.sqrt(), relative }
    }

    #[inline(always)]
    fn send<P: Power>(&mut self, model: &Model, power: P, host: usize) {
        let layout = &model.layout;
        let range = layout.sent_by(host);
        if range.is_empty() {
            return;
        }
        let cone = model.send_row(host);
        let renews = self.round <= RENEWALS + 1;
        for (at, sender) in range.clone().enumerate() {
            let mut shared = T::default();
            if renews {
                let floor = self.x_floor[sender];
                let conic = step::cone_curvature(self.sending[host], cone, at);
                let own = step::rate_curvature(power, self.weights[sender], self.x[sender], floor);
                shared = (own + T::of(conic)) * self.shared[sender];
            }
            let mut sums = Sender::default();
            for edge in layout.out(sender) {
                let told = match &self.copies {
                    Some(copies) => copies.told[edge],
                    None => self.told(model, edge),
                };
                let completions = self.completions[edge];
                if renews {
                    self.rho[edge] = step::penalty(shared, completions, told.curvature);
                }
                sums.add(self.rho[edge], completions, told);
            }
            (self.scratch.a[at], self.scratch.b[at]) = (sums.a, sums.b);
        }
        let bounds = Bounds {
            weights: &self.weights[range.clone()],
            cone,
            limits: model.limits.as_ref().map(|limits| &limits[range.clone()]),
            capacity: model.send_capacity[host],
            at_least: false,
        };
        let x = &mut self.x[range.clone()];
        let price = &mut self.sending[host];
        self.passes[0] += step::move_host(power, &bounds, &mut self.scratch, x, price);
        for sender in range {
            for edge in layout.out(sender) {
                self.sent[edge] = self.completions[edge] * self.x[sender];
            }
        }
    }

    /// What a receiver takes an edge's relaxed message and inverse penalty to be.
    #[inline(always)]
    fn taken(&self, edge: usize, lost: Option<&Lost>) -> (T, T) {
        let value = self.values[edge];
        match (lost, &self.copies) {
            (Some(lost), Some(copies))
                if lost.messages[edge] && copies.inverse[edge] > T::default() =>
            {
                (value, copies.inverse[edge])
            }
            _ => (step::relax(self.sent[edge], value), T::of(1.0) / self.rho[edge]),
        }
    }

    #[inline(always)]
    fn receive(&mut self, model: &Model, host: usize, lost: Option<&Lost>, norms: &mut Norms) {
        let layout = &model.layout;
        let range = layout.received_by(host);
        if range.is_empty() {
            return;
        }
        for (at, to) in range.clone().enumerate() {
            let mut sums = Receiver::default();
            for edge in layout.incoming(to) {
                let (relaxed, inverse) = self.taken(*edge as usize, lost);
                sums.add(relaxed, inverse);
            }
            (self.scratch.a[at], self.scratch.b[at]) = sums.coefficients(self.y[to]);
            self.scratch.sums[at] = sums;
            self.scratch.old[at] = self.z[to];
        }
        let bounds = Bounds {
            weights: &[T::of(2.0 * model.beta[host])],
            cone: model.completion_row(host),
            limits: None,
            capacity: model.completion_capacity[host],
            at_least: model.coupling == Coupling::AtLeast,
        };
        let z = &mut self.z[range.clone()];
        let price = &mut self.completing[host];
        self.passes[1] += step::move_host(COMPLETIONS, &bounds, &mut self.scratch, z, price);
        for (at, to) in range.enumerate() {
            self.settle(model, at, to, lost, norms);
        }
        if self.round <= RENEWALS {
            self.curve_completions(model, host);
        }
    }

    /// Moves the price of one receiver and its edge values.
    #[inline(always)]
    fn settle(
        &mut self,
        model: &Model,
        at: usize,
        to: usize,
        lost: Option<&Lost>,
        norms: &mut Norms,
    ) {
        let sums = self.scratch.sums[at];
        let at_least = model.coupling == Coupling::AtLeast;
        let old = self.y[to];
        let mut given = self.z[to];
        let mut price = old + sums.move_of_price(given);
        if at_least {
            // Completions beyond what is sent are left unused, and their price is 0.
            let most = sums.sum + old * sums.inverse;
            given = if given < most { given } else { most };
            price = (old + sums.move_of_price(given)).or_larger(T::default());
        }
        let moved = price - old;
        self.y[to] = price;
        let mut used = 0.0;
        for edge in model.layout.incoming(to) {
            let edge = *edge as usize;
            used += self.sent[edge].wide();
            let (relaxed, inverse) = self.taken(edge, lost);
            self.values[edge] = relaxed - moved * inverse;
            if let Some(copies) = &mut self.copies {
                copies.inverse[edge] = inverse;
            }
        }
        let (given, penalty) = (given.wide(), 1.0 / sums.inverse.wide());
        let gap = used - self.z[to].wide();
        let gap = if at_least { gap.max(0.0) } else { gap };
        let turn = penalty * (given - self.scratch.old[at].wide());
        norms.primal += gap * gap;
        norms.dual += turn * turn;
        norms.used += used * used;
        norms.given += given * given;
        norms.price += price.wide() * price.wide();
    }

    #[inline(always)]
    fn curve_completions(&mut self, model: &Model, host: usize) {
        let cone = model.completion_row(host);
        let six_beta = T::of(6.0 * model.beta[host]);
        for (at, to) in model.layout.received_by(host).enumerate() {
            let conic = step::cone_curvature(self.completing[host], cone, at);
            let own = step::completion_curvature(six_beta, self.z[to], self.z_floor[to]);
            let edges = T::of(model.layout.incoming(to).len() as f64);
            self.curvatures[to] = (own + T::of(conic)) * edges;
        }
    }

    fn deliver_replies(&mut self, model: &Model, lost: &Lost) {
        let Some(mut copies) = self.copies.take() else { return };
        for edge in 0..model.layout.edge_count() {
            if !lost.replies[edge] {
                copies.told[edge] = self.told(model, edge);
            }
        }
        self.copies = Some(copies);
    }
}

impl<T: Real> Rounds<T> {
    /// Whether copies for losses are kept.
    pub(super) fn expects_losses(&self) -> bool {
        self.copies.is_some()
    }

    /// The point where the rounds stand, in the units of another model of the same applications.
    pub(super) fn carry(&self, old: &Model, new: &Model) -> Point {
        let ratio = old.scale / new.scale;
        // A price is utility over rate: it scales as the marginal utility does.
        let price = ratio.powf(-new.alpha);
        let scale = |values: &[T], by: f64| values.iter().map(|value| value.wide() * by).collect();
        let prices = |prices: &[Price]| {
            let conic = price / ratio;
            let scaled =
                |now: &Price| Price { linear: now.linear * price, conic: now.conic * conic };
            prices.iter().map(scaled).collect()
        };
        Point {
            x: scale(&self.x, ratio),
            z: scale(&self.z, ratio),
            y: scale(&self.y, price),
            sending: prices(&self.sending),
            completing: prices(&self.completing),
        }
    }
}
