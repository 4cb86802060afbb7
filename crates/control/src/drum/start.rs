//! Where the rounds begin.
use super::bound::Bound;
use super::direct::{HostProblem, Prices};
use super::fill::Price;
use super::flow::Flow;
use super::model::{Cone, Model};
use super::parts::{each, take};
use super::problem::Coupling;
use super::recover::Recovery;
use super::utility::{completion_marginal, rate_at};

/// Where a solver begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Every host solves its own problem exactly, taking what it receives to be as much as it sends;
    /// one message tells who is overloaded. The optimum itself where hosts do not depend on each other.
    #[default]
    Local,
    /// Rates in proportion to `weight^(1/alpha)`, scaled to fit, and no prices.
    Fair,
}

/// How far rates go towards their answer to a change, as an exponent.
const ANSWER: f64 = 0.75;

/// Goes most of the way from a rate to its answer to a change.
fn towards(alpha: f64, before: f64, answer: f64) -> f64 {
    // Below alpha = 1 rates answer more than in proportion, to prices that then move.
    before * (answer / before).powf(ANSWER * alpha.min(1.0))
}

/// A starting point: rates, completions and prices.
pub(super) struct Point {
    pub(super) x: Vec<f64>,
    pub(super) z: Vec<f64>,
    pub(super) y: Vec<f64>,
    pub(super) sending: Vec<Price>,
    pub(super) completing: Vec<Price>,
}

impl Point {
    /// Goes most of the way to the rates that are best for every host at the prices of completions.
    pub(super) fn answer(&mut self, model: &Model, flow: &mut Flow, bounds: &mut Bound) {
        let before = self.x.clone();
        let prices = &self.y;
        bounds.answer(model, flow, |to| prices[to], &mut self.x, &mut self.sending);
        for (x, before) in self.x.iter_mut().zip(before) {
            *x = towards(model.alpha, before, *x);
        }
    }

    /// Goes to the recovered rates, and raises prices as the recovery did.
    pub(super) fn follow(&mut self, model: &Model, recovery: &Recovery) {
        self.x.copy_from_slice(&recovery.x);
        self.z.copy_from_slice(&recovery.z);
        for (price, raised) in self.completing.iter_mut().zip(&recovery.raised) {
            price.linear += raised;
        }
        for (to, price) in self.y.iter_mut().enumerate() {
            let host = model.layout.host_of_receiver(to);
            let share = Model::reserved(&model.completion_cone, to);
            let completion = completion_marginal(model.beta[host], self.z[to]);
            *price = self.completing[host].linear * share - completion;
            if model.coupling == Coupling::AtLeast {
                *price = price.max(0.0);
            }
        }
    }
}

/// Share of a capacity that one unit takes, roughly, where there is preemption.
fn share(cone: &Option<Cone>, at: usize, count: usize) -> f64 {
    cone.as_ref().map_or(1.0, |cone| cone.reserved[at] + cone.uncertain[at] / (count as f64).sqrt())
}

/// How much a host takes itself to receive for each unit that it sends, where it depends on others.
pub(super) const ALONE_RECEIVES: f64 = 1.0;

/// What a rate with so many completions at its own host costs there, and what it uses: `beta / used^2`
/// and `used`, for a host that receives `received` for each unit that it sends.
pub(super) fn local_use(beta: f64, completions: f64, received: f64) -> (f64, f64) {
    let used = (1.0 + received) * completions;
    (if used > 0.0 { beta / (used * used) } else { 0.0 }, used)
}

/// The exact problem of one host alone: rows over its senders.
pub(super) struct LocalRows {
    beta: Vec<f64>,
    send: Vec<f64>,
    complete: Vec<f64>,
}

impl LocalRows {
    /// `own`: the [`Model::own_edges`]; `received`: how much a host receives for each unit that it sends.
    pub(super) fn new(model: &Model, own: &[(f64, u32)], host: usize, received: f64) -> Self {
        let layout = &model.layout;
        let range = layout.sent_by(host);
        let (mut beta, mut send, mut complete) = (Vec::new(), Vec::new(), Vec::new());
        for sender in range.clone() {
            send.push(share(&model.send_cone, sender, range.len()));
            let (completions, to) = own[sender];
            let (cost, used) = local_use(model.beta[host], completions, received);
            let count = layout.received_by(host).len();
            beta.push(cost);
            complete.push(if completions > 0.0 {
                used * share(&model.completion_cone, to as usize, count)
            } else {
                0.0
            });
        }
        Self { beta, send, complete }
    }

    /// Solves the host's problem into `x`; returns its prices and the passes that it took.
    pub(super) fn solve(&self, model: &Model, host: usize, x: &mut [f64]) -> (Prices, usize) {
        let range = model.layout.sent_by(host);
        let problem = HostProblem {
            alpha: model.alpha,
            weights: &model.weights[range.clone()],
            beta: &self.beta,
            send: &self.send,
            complete: &self.complete,
            limits: model.limits.as_ref().map(|limits| &limits[range]),
            send_capacity: model.send_capacity[host],
            completion_capacity: model.completion_capacity[host],
            tolerance: if model.layout.one_sided { 1e-14 } else { 1e-4 },
        };
        problem.solve(x)
    }
}

/// Sets where one host begins; returns its prices.
fn begin_host(
    model: &Model,
    start: Start,
    own: &[(f64, u32)],
    host: usize,
    x: &mut [f64],
) -> Prices {
    let layout = &model.layout;
    if start == Start::Local {
        let received = if layout.one_sided { 0.0 } else { ALONE_RECEIVES };
        return LocalRows::new(model, own, host, received).solve(model, host, x).0;
    }
    for (x, weight) in x.iter_mut().zip(&model.weights[layout.sent_by(host)]) {
        *x = rate_at(model.alpha, 1.0 / weight);
    }
    let used = super::model::used(model.send_row(host), x.len(), |at| x[at]);
    x.iter_mut().for_each(|x| *x *= model.send_capacity[host] / used);
    Prices::default()
}

pub(super) fn point(model: &Model, start: Start, recovery: &mut Recovery) -> Point {
    let layout = &model.layout;
    let mut x = vec![0.0; layout.senders.len()];
    let mut prices = vec![Prices::default(); layout.hosts];
    let own = if start == Start::Local { model.own_edges() } else { Vec::new() };
    let (mut rates, mut of_hosts) = (&mut x[..], &mut prices[..]);
    let shares = layout.parts.iter().map(|part| {
        let hosts = part.hosts.clone();
        let rates = take(&mut rates, layout.sent_by_all(hosts.clone()).len());
        (hosts.clone(), rates, take(&mut of_hosts, hosts.len()))
    });
    each(shares, |(hosts, mut x, prices)| {
        for (host, prices) in hosts.zip(prices) {
            let x = take(&mut x, layout.sent_by(host).len());
            if !x.is_empty() {
                *prices = begin_host(model, start, &own, host, x);
            }
        }
    });
    recovery.recover(model, x.iter().copied());
    x.copy_from_slice(&recovery.x);
    let mut z = vec![0.0; layout.receivers.len()];
    recovery.flow.complete(model, &x, &mut z);
    let y = if start == Start::Local {
        local_prices(model, &mut prices, recovery, &z)
    } else {
        vec![0.0; z.len()]
    };
    let price = |linear| Price { linear, conic: 0.0 };
    Point {
        x,
        z,
        y,
        sending: prices.iter().map(|prices| price(prices.send)).collect(),
        completing: prices.iter().map(|prices| price(prices.complete)).collect(),
    }
}

/// Raises the hosts' prices as the recovery did; returns the prices of the receivers that follow.
fn local_prices(model: &Model, prices: &mut [Prices], recovery: &Recovery, z: &[f64]) -> Vec<f64> {
    let layout = &model.layout;
    prices.iter_mut().zip(&recovery.raised).for_each(|(prices, raised)| prices.complete += raised);
    let price = |to: usize| {
        let host = layout.host_of_receiver(to);
        let count = layout.received_by(host).len();
        let capacity = prices[host].complete * share(&model.completion_cone, to, count);
        let price = capacity - completion_marginal(model.beta[host], z[to]);
        if model.coupling == Coupling::AtLeast { price.max(0.0) } else { price }
    };
    (0..z.len()).map(price).collect()
}
