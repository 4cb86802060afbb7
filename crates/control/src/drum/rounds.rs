//! Rounds of all hosts: every sender's step, the messages, every receiver's step, the replies.
use super::fill::Price;
use super::joint::sum_of_squares;
use super::model::Model;
use super::problem::Coupling;
use super::real::Real;
use super::start::Point;
use super::step::{
    self, Bounds, CLIP, COMPLETIONS, KAPPA, RELAXATION, RENEWALS, Receiver, Scratch, Sender, Told,
};
use super::utility::Power;

/// What arrives of the messages of a round: for each edge whether its message, and its reply, was lost.
pub(super) struct Lost {
    pub(super) messages: Vec<bool>,
    pub(super) replies: Vec<bool>,
}

/// What a sender holds of each edge when replies can be lost, and a receiver when messages can.
#[derive(Clone, Debug)]
pub(super) struct Copies<T> {
    pub(super) told: Vec<Told<T>>,
    pub(super) inverse: Vec<T>,
}

/// What a receiver has ready for all its edges.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready<T> {
    /// How far the price moved: edge values have yet to follow.
    pub(super) moved: T,
    pub(super) price: T,
    pub(super) flatness: T,
    pub(super) curvature: T,
}

impl<T: Real> Ready<T> {
    /// What an edge is told.
    #[inline(always)]
    fn told(self, value: T) -> Told<T> {
        let Self { price, flatness, curvature, .. } = self;
        Told { price, value, flatness, curvature }
    }
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
    /// Over edges: relaxed messages, from which edge values follow once the price has moved.
    pub(super) values: Vec<T>,
    pub(super) inverse: Vec<T>,
    /// Over receivers.
    pub(super) ready: Vec<Ready<T>>,
    pub(super) sums: Vec<Receiver<T>>,
    /// Sums of the edge values where completions may be left unused; else `z`.
    pub(super) given: Vec<T>,
    /// Over senders: coefficients of their minimisations, and what their penalties share.
    pub(super) slopes: Vec<Sender<T>>,
    pub(super) stiffness: Vec<T>,
    /// Penalties of hosts alone.
    pub(super) rho: Vec<T>,
    pub(super) x_floor: Vec<T>,
    pub(super) z_floor: Vec<T>,
    /// Inputs in this precision.
    pub(super) weights: Vec<T>,
    pub(super) completions: Vec<T>,
    /// Over receivers: 1 over the number of edges.
    spread: Vec<T>,
    /// Over senders: `KAPPA / sum of completions`, and 1 over that and `alpha w`.
    pub(super) shared: Vec<T>,
    pub(super) flat: Vec<T>,
    pub(super) scratch: Scratch<T>,
    pub(super) copies: Option<Copies<T>>,
}

fn narrow<T: Real>(values: &[f64]) -> Vec<T> {
    values.iter().map(|value| T::of(*value)).collect()
}

impl<T: Real> Rounds<T> {
    pub(super) fn new(model: &Model, point: &Point) -> Self {
        let layout = &model.layout;
        let shared: Vec<f64> = (0..layout.senders.len())
            .map(|sender| {
                let sum: f64 = layout.out(sender).map(|edge| model.completions[edge]).sum();
                KAPPA / sum.max(1e-300)
            })
            .collect();
        let flat = shared.iter().zip(&model.weights);
        let flat = flat.map(|(shared, weight)| T::of(1.0 / (shared * model.alpha * weight)));
        let flat = flat.collect();
        let (edges, senders) = (layout.edge_count(), layout.senders.len());
        let receivers = layout.receivers.len();
        let spread = |to| T::of(1.0 / f64::from(layout.incoming(to)));
        let mut rounds = Self {
            x: Vec::new(),
            sending: Vec::new(),
            z: Vec::new(),
            y: Vec::new(),
            completing: Vec::new(),
            round: 0,
            passes: [0; 2],
            values: vec![T::default(); edges],
            inverse: vec![T::default(); edges],
            ready: vec![Ready::default(); receivers],
            spread: (0..receivers).map(spread).collect(),
            sums: vec![Receiver::default(); receivers],
            given: vec![T::default(); receivers],
            slopes: vec![Sender::default(); senders],
            stiffness: vec![T::default(); senders],
            rho: vec![T::default(); if layout.one_sided { senders } else { 0 }],
            x_floor: Vec::new(),
            z_floor: Vec::new(),
            weights: narrow(&model.weights),
            completions: narrow(&model.completions),
            shared: narrow(&shared),
            flat,
            scratch: Scratch::new(layout.widest()),
            copies: None,
        };
        rounds.begin(model, point);
        rounds
    }

    /// Begins an epoch at a point.
    fn begin(&mut self, model: &Model, point: &Point) {
        self.x = narrow(&point.x);
        self.z = narrow(&point.z);
        self.y = narrow(&point.y);
        self.sending.clone_from(&point.sending);
        self.completing.clone_from(&point.completing);
        for (sender, edges) in model.layout.sweep() {
            for edge in edges {
                self.values[edge] = T::of(model.completions[edge] * point.x[sender]);
                let to = model.layout.to[edge] as usize;
                self.given[to] += self.values[edge];
            }
        }
        let clip = |values: &[T]| {
            let floor = |value: &T| (T::of(CLIP) * *value).or_larger(T::of(1e-12));
            values.iter().map(floor).collect()
        };
        self.x_floor = clip(&self.x);
        self.z_floor = clip(&self.z);
        self.prepare(model);
    }

    /// Makes ready what the edges read, from prices and completions.
    fn prepare(&mut self, model: &Model) {
        for (ready, price) in self.ready.iter_mut().zip(&self.y) {
            (ready.moved, ready.price) = (T::default(), *price);
        }
        (0..model.layout.hosts).for_each(|host| self.flatten_completions(model, host));
    }

    /// Keeps, from now on, what each side was told last, so that messages can be lost.
    pub(super) fn expect_losses(&mut self, model: &Model) {
        if model.layout.one_sided && self.is_plain(model) {
            // Rounds of a host alone have kept neither.
            self.values.copy_from_slice(&self.z);
            self.rho.iter().zip(&mut self.inverse).for_each(|(rho, inverse)| {
                *inverse = if *rho > T::default() { T::of(1.0) / *rho } else { T::default() };
            });
            self.prepare(model);
        }
        let inverse = self.inverse.clone();
        self.follow_prices(model, &inverse);
        let edges = 0..model.layout.edge_count();
        let told = edges.map(|edge| self.told(model, edge)).collect();
        self.copies = Some(Copies { told, inverse: vec![T::default(); inverse.len()] });
    }

    /// Moves all edge values after their prices.
    fn follow_prices(&mut self, model: &Model, inverse: &[T]) {
        for ((value, to), inverse) in self.values.iter_mut().zip(&model.layout.to).zip(inverse) {
            *value = *value - self.ready[*to as usize].moved * *inverse;
        }
        self.ready.iter_mut().for_each(|ready| ready.moved = T::default());
    }

    #[inline(always)]
    fn told(&self, model: &Model, edge: usize) -> Told<T> {
        self.ready[model.layout.to[edge] as usize].told(self.values[edge])
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
        let hosts = 0..model.layout.hosts;
        if model.layout.one_sided && self.copies.is_none() && self.is_plain(model) {
            hosts.for_each(|host| self.own(model, power, host, &mut norms));
        } else {
            if self.round <= RENEWALS + 1 {
                hosts.clone().for_each(|host| self.stiffen(model, power, host));
            }
            self.gather_replies(model);
            hosts.clone().for_each(|host| self.send(model, power, host));
            self.deliver_messages(model, lost);
            hosts.for_each(|host| self.receive(model, host, &mut norms));
        }
        if let Some(lost) = lost {
            self.deliver_replies(model, lost);
        }
        let relative = (norms.primal.sqrt() / norms.used.max(norms.given).sqrt())
            .max(norms.dual.sqrt() / norms.price.sqrt().max(1e-30));
        Residuals { primal: norms.primal.sqrt(), dual: norms.dual.sqrt(), relative }
    }

    /// Senders' part of their penalties, from the curvatures of their utilities.
    #[inline(always)]
    fn stiffen<P: Power>(&mut self, model: &Model, power: P, host: usize) {
        let range = model.layout.sent_by(host);
        let (x, floor) = (&self.x[range.clone()], &self.x_floor[range.clone()]);
        let flat = &self.flat[range.clone()];
        let (shared, stiffness) = (&self.shared[range.clone()], &mut self.stiffness[range]);
        for at in 0..stiffness.len() {
            let flatness = step::rate_flatness(power, flat[at], x[at], floor[at]);
            stiffness[at] = T::of(1.0) / flatness;
        }
        let Some(cone) = model.send_row(host) else { return };
        for (at, stiffness) in stiffness.iter_mut().enumerate() {
            let conic = step::cone_curvature(self.sending[host], Some(cone), at);
            *stiffness += T::of(conic) * shared[at];
        }
    }

    /// Edge values follow their prices, penalties are renewed, and senders gather their coefficients.
    #[inline(always)]
    fn gather_replies(&mut self, model: &Model) {
        let renews = self.round <= RENEWALS + 1;
        for (sender, edges) in model.layout.sweep() {
            let shared = self.shared[sender];
            let to = &model.layout.to[edges.clone()];
            let completions = &self.completions[edges.clone()];
            let (values, inverses) =
                (&mut self.values[edges.clone()], &mut self.inverse[edges.clone()]);
            let copies = self.copies.as_ref().map(|copies| &copies.told[edges]);
            let told = |at: usize, value: T| match copies {
                Some(copies) => copies[at],
                None => self.ready[to[at] as usize].told(value),
            };
            let mut stiffness = self.stiffness[sender];
            if renews {
                for (at, &completion) in completions.iter().enumerate().take(to.len()) {
                    let curvature = told(at, T::default()).curvature;
                    stiffness += shared * completion * completion * curvature;
                }
            }
            let mut sums = Sender::default();
            for at in 0..to.len() {
                values[at] = values[at] - self.ready[to[at] as usize].moved * inverses[at];
                let told = told(at, values[at]);
                if renews {
                    let own = shared * completions[at] * completions[at] * told.curvature;
                    inverses[at] = step::inverse_penalty(
                        step::stiffness_elsewhere(self.stiffness[sender], stiffness, own),
                        completions[at],
                        told.flatness,
                    );
                }
                sums.add(T::of(1.0) / inverses[at], completions[at], told);
            }
            self.slopes[sender] = sums;
        }
    }

    /// Moves the rates of one host.
    #[inline(always)]
    fn send<P: Power>(&mut self, model: &Model, power: P, host: usize) {
        let range = model.layout.sent_by(host);
        if range.is_empty() {
            return;
        }
        let count = range.len();
        let slopes = &self.slopes[range.clone()];
        let (a, b) = (&mut self.scratch.a[..count], &mut self.scratch.b[..count]);
        for at in 0..count {
            (a[at], b[at]) = (slopes[at].a, slopes[at].b);
        }
        let bounds = Bounds {
            weights: &self.weights[range.clone()],
            cone: model.send_row(host),
            limits: model.limits.as_ref().map(|limits| &limits[range.clone()]),
            capacity: model.send_capacity[host],
            at_least: false,
        };
        let x = &mut self.x[range];
        let price = &mut self.sending[host];
        self.passes[0] += step::move_host(power, &bounds, &mut self.scratch, x, price);
    }

    /// Takes every message to its receiver; one that is lost leaves the edge as it was.
    #[inline(always)]
    fn deliver_messages(&mut self, model: &Model, lost: Option<&Lost>) {
        self.sums.fill(Receiver::default());
        for (sender, edges) in model.layout.sweep() {
            let x = self.x[sender];
            let to = &model.layout.to[edges.clone()];
            let completions = &self.completions[edges.clone()];
            let (values, inverses) =
                (&mut self.values[edges.clone()], &self.inverse[edges.clone()]);
            for at in 0..to.len() {
                let (mut relaxed, mut inverse) =
                    (step::relax(completions[at] * x, values[at]), inverses[at]);
                if let (Some(lost), Some(copies)) = (lost, &mut self.copies) {
                    let heard = &mut copies.inverse[edges.start + at];
                    if lost.messages[edges.start + at] && *heard > T::default() {
                        (relaxed, inverse) = (values[at], *heard);
                    }
                    *heard = inverse;
                }
                values[at] = relaxed;
                self.sums[to[at] as usize].add(relaxed, inverse);
            }
        }
    }

    /// Moves the completions of one host, and its prices.
    #[inline(always)]
    fn receive(&mut self, model: &Model, host: usize, norms: &mut Norms) {
        let range = model.layout.received_by(host);
        if range.is_empty() {
            return;
        }
        let count = range.len();
        let at_least = model.coupling == Coupling::AtLeast;
        let (sums, y) = (&self.sums[range.clone()], &self.y[range.clone()]);
        let (a, b) = (&mut self.scratch.a[..count], &mut self.scratch.b[..count]);
        for at in 0..count {
            a[at] = T::of(1.0) / sums[at].inverse;
            b[at] = step::completion_slope(a[at], sums[at].sum, y[at]);
        }
        let z = &mut self.z[range.clone()];
        let before = if at_least { &self.given[range.clone()] } else { &*z };
        self.scratch.relaxed[..count].copy_from_slice(before);
        self.scratch.old[..count].copy_from_slice(z);
        let bounds = Bounds {
            weights: &[T::of(2.0 * model.beta[host])],
            cone: model.completion_row(host),
            limits: None,
            capacity: model.completion_capacity[host],
            at_least,
        };
        let price = &mut self.completing[host];
        self.passes[1] += step::move_host(COMPLETIONS, &bounds, &mut self.scratch, z, price);
        self.settle(range, at_least, norms);
        if self.round <= RENEWALS {
            self.flatten_completions(model, host);
        }
    }

    /// Moves the prices of one host's receivers; their edge values follow.
    #[inline(always)]
    fn settle(&mut self, range: std::ops::Range<usize>, at_least: bool, norms: &mut Norms) {
        let count = range.len();
        let (sums, z) = (&self.sums[range.clone()], &self.z[range.clone()]);
        let (y, ready) = (&mut self.y[range.clone()], &mut self.ready[range.clone()]);
        let given = &mut self.given[range];
        let (penalty, gaps) = (&self.scratch.a[..count], &mut self.scratch.b[..count]);
        let turns = &mut self.scratch.steps[..count];
        let used = &mut self.scratch.relaxed[..count];
        let old = &self.scratch.old[..count];
        let back = T::of(1.0 / RELAXATION);
        for at in 0..count {
            // The edge values added up to what was given.
            used[at] = step::unrelax(sums[at].sum, used[at], back);
        }
        if at_least {
            for at in 0..count {
                // Completions beyond what is sent are left unused, and their price is 0.
                given[at] = z[at].or_smaller(sums[at].sum + y[at] * sums[at].inverse);
                let moved = step::move_of_price(penalty[at], sums[at].sum, given[at]);
                let price = (y[at] + moved).or_larger(T::default());
                (ready[at].moved, ready[at].price) = (price - y[at], price);
                y[at] = price;
                gaps[at] = (used[at] - z[at]).or_larger(T::default());
                turns[at] = penalty[at] * (given[at] - old[at]);
            }
        } else {
            for at in 0..count {
                let moved = step::move_of_price(penalty[at], sums[at].sum, z[at]);
                y[at] += moved;
                (ready[at].moved, ready[at].price) = (moved, y[at]);
                gaps[at] = used[at] - z[at];
                turns[at] = penalty[at] * (z[at] - old[at]);
            }
        }
        let given = if at_least { &*given } else { z };
        norms.primal += sum_of_squares(gaps);
        norms.dual += sum_of_squares(turns);
        norms.used += sum_of_squares(used);
        norms.given += sum_of_squares(given);
        norms.price += sum_of_squares(y);
    }

    #[inline(always)]
    fn flatten_completions(&mut self, model: &Model, host: usize) {
        let cone = model.completion_row(host);
        let factor = T::of(1.0 / (6.0 * model.beta[host]));
        let range = model.layout.received_by(host);
        let (z, floor) = (&self.z[range.clone()], &self.z_floor[range.clone()]);
        let (spread, ready) = (&self.spread[range.clone()], &mut self.ready[range]);
        for at in 0..ready.len() {
            let own = step::completion_flatness(factor, z[at], floor[at]);
            (ready[at].flatness, ready[at].curvature) = (own * spread[at], T::of(1.0) / own);
        }
        let Some(cone) = cone else { return };
        for (at, ready) in ready.iter_mut().enumerate() {
            let conic = step::cone_curvature(self.completing[host], Some(cone), at);
            ready.curvature += T::of(conic);
            ready.flatness = spread[at] / ready.curvature;
        }
    }

    fn deliver_replies(&mut self, model: &Model, lost: &Lost) {
        let Some(mut copies) = self.copies.take() else { return };
        self.follow_prices(model, &copies.inverse);
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
