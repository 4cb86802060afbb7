//! Steps of hosts, each on its own rows.
use super::fill::Price;
use super::joint::sum_of_squares;
use super::layout::Layout;
use super::model::Model;
use super::parts::{Arithmetic, from, take};
use super::problem::Coupling;
use super::real::Real;
use super::state::{Fixed, Hand, Norms, Ready, Rounds};
use super::step::{self, Bounds, COMPLETIONS, RELAXATION, Receiver, Sender};
use super::utility::Power;
use std::ops::Range;

/// The rows of hosts that follow each other, for one thread.
pub(super) struct Rows<'a, T> {
    pub(super) hosts: Range<usize>,
    /// The first of their senders and receivers.
    pub(super) first_sender: usize,
    pub(super) first_receiver: usize,
    pub(super) x: &'a mut [T],
    pub(super) stiffness: &'a mut [T],
    pub(super) rho: &'a mut [T],
    pub(super) sending: &'a mut [Price],
    pub(super) completing: &'a mut [Price],
    pub(super) norms: &'a mut [Norms],
    pub(super) z: &'a mut [T],
    pub(super) y: &'a mut [T],
    pub(super) given: &'a mut [T],
    pub(super) ready: &'a mut [Ready<T>],
    /// In tiles, of all.
    pub(super) slopes: &'a [Sender<T>],
    pub(super) sums: &'a [Receiver<T>],
    pub(super) fixed: &'a Fixed<T>,
    pub(super) hand: &'a mut Hand<T>,
}

/// A step of one host.
pub(super) trait HostStep<T>: Copy + Sync {
    /// Does it; always inlined, as [`Arithmetic`] has to be.
    fn take(self, rows: &mut Rows<'_, T>, host: usize);
}

/// A step of each host of some rows.
pub(super) struct EachHost<'a, T, H> {
    pub(super) rows: Rows<'a, T>,
    pub(super) step: H,
}

impl<T: Real, H: HostStep<T>> Arithmetic for EachHost<'_, T, H> {
    #[inline(always)]
    fn compute(mut self) {
        for host in self.rows.hosts.clone() {
            self.step.take(&mut self.rows, host);
        }
    }
}

/// [`Rows::stiffen`].
#[derive(Clone, Copy)]
pub(super) struct Stiffen<'a, P> {
    pub(super) model: &'a Model,
    pub(super) power: P,
}

impl<T: Real, P: Power> HostStep<T> for Stiffen<'_, P> {
    #[inline(always)]
    fn take(self, rows: &mut Rows<'_, T>, host: usize) {
        rows.stiffen(self.model, self.power, host);
    }
}

/// [`Rows::send`].
#[derive(Clone, Copy)]
pub(super) struct Send<'a, P> {
    pub(super) model: &'a Model,
    pub(super) power: P,
}

impl<T: Real, P: Power> HostStep<T> for Send<'_, P> {
    #[inline(always)]
    fn take(self, rows: &mut Rows<'_, T>, host: usize) {
        rows.send(self.model, self.power, host);
    }
}

/// [`Rows::receive`].
#[derive(Clone, Copy)]
pub(super) struct Receive<'a> {
    pub(super) model: &'a Model,
    pub(super) renews: bool,
}

impl<T: Real> HostStep<T> for Receive<'_> {
    #[inline(always)]
    fn take(self, rows: &mut Rows<'_, T>, host: usize) {
        rows.receive(self.model, host, self.renews);
    }
}

/// [`Rows::flatten_completions`].
#[derive(Clone, Copy)]
pub(super) struct Flatten<'a> {
    pub(super) model: &'a Model,
}

impl<T: Real> HostStep<T> for Flatten<'_> {
    #[inline(always)]
    fn take(self, rows: &mut Rows<'_, T>, host: usize) {
        rows.flatten_completions(self.model, host);
    }
}

impl<T: Real> Rounds<T> {
    /// The rows of each part.
    pub(super) fn rows<'a>(
        &'a mut self,
        layout: &'a Layout,
    ) -> impl ExactSizeIterator<Item = Rows<'a, T>> {
        let [mut x, mut stiffness, mut rho] =
            [&mut self.x, &mut self.stiffness, &mut self.rho].map(Vec::as_mut_slice);
        let [mut z, mut y, mut given] =
            [&mut self.z, &mut self.y, &mut self.given].map(Vec::as_mut_slice);
        let [mut sending, mut completing] =
            [&mut self.sending, &mut self.completing].map(Vec::as_mut_slice);
        let (mut norms, mut ready) = (&mut self.norms[..], &mut self.ready[..]);
        let (slopes, sums, fixed) = (&self.slopes, &self.sums, &self.fixed);
        layout.parts.iter().zip(&mut self.hands).map(move |(part, hand)| {
            let hosts = part.hosts.clone();
            let senders = layout.sent_by_all(hosts.clone());
            let receivers = layout.received_by_all(hosts.clone());
            Rows {
                first_sender: senders.start,
                first_receiver: receivers.start,
                x: take(&mut x, senders.len()),
                stiffness: take(&mut stiffness, senders.len()),
                rho: take(&mut rho, senders.len()),
                sending: take(&mut sending, hosts.len()),
                completing: take(&mut completing, hosts.len()),
                norms: take(&mut norms, hosts.len()),
                z: take(&mut z, receivers.len()),
                y: take(&mut y, receivers.len()),
                given: take(&mut given, receivers.len()),
                ready: take(&mut ready, receivers.len()),
                slopes,
                sums,
                fixed,
                hand,
                hosts,
            }
        })
    }
}

impl<T: Real> Rows<'_, T> {
    /// A host's senders: of all, and of these rows.
    #[inline(always)]
    pub(super) fn senders(&self, layout: &Layout, host: usize) -> [Range<usize>; 2] {
        let all = layout.sent_by(host);
        [all.clone(), from(self.first_sender, all)]
    }

    /// A host's receivers: of all, and of these rows.
    #[inline(always)]
    fn receivers(&self, layout: &Layout, host: usize) -> [Range<usize>; 2] {
        let all = layout.received_by(host);
        [all.clone(), from(self.first_receiver, all)]
    }

    /// Senders' part of their penalties, from the curvatures of their utilities.
    #[inline(always)]
    fn stiffen<P: Power>(&mut self, model: &Model, power: P, host: usize) {
        let [all, own] = self.senders(&model.layout, host);
        let (x, floor) = (&self.x[own.clone()], &self.fixed.x_floor[all.clone()]);
        let flat = &self.fixed.flat[all.clone()];
        let stiffness = &mut self.stiffness[own];
        for at in 0..stiffness.len() {
            let flatness = step::rate_flatness(power, flat[at], x[at], floor[at]);
            stiffness[at] = T::of(1.0) / flatness;
        }
        let Some(cone) = model.send_row(host) else { return };
        let shared = &mut self.hand.rows.a;
        model.layout.sending.to_rows(all, &self.fixed.shared, shared);
        let price = self.sending[host - self.hosts.start];
        for (at, stiffness) in stiffness.iter_mut().enumerate() {
            let conic = step::cone_curvature(price, Some(cone), at);
            *stiffness += T::of(conic) * shared[at];
        }
    }

    /// Moves the rates of one host.
    #[inline(always)]
    fn send<P: Power>(&mut self, model: &Model, power: P, host: usize) {
        let [all, own] = self.senders(&model.layout, host);
        if all.is_empty() {
            return;
        }
        let count = all.len();
        let scratch = &mut self.hand.rows;
        model.layout.sending.to_rows(all.clone(), self.slopes, &mut scratch.slopes);
        let slopes = &scratch.slopes[..count];
        let (a, b) = (&mut scratch.a[..count], &mut scratch.b[..count]);
        for at in 0..count {
            (a[at], b[at]) = (slopes[at].a, slopes[at].b);
        }
        let bounds = Bounds {
            weights: &self.fixed.weights[all.clone()],
            cone: model.send_row(host),
            limits: model.limits.as_ref().map(|limits| &limits[all]),
            capacity: model.send_capacity[host],
            at_least: false,
        };
        let x = &mut self.x[own];
        let price = &mut self.sending[host - self.hosts.start];
        self.hand.passes[0] += step::move_host(power, &bounds, scratch, x, price);
    }

    /// Moves the completions of one host, and its prices; `renews` penalties after that.
    #[inline(always)]
    fn receive(&mut self, model: &Model, host: usize, renews: bool) {
        let [all, own] = self.receivers(&model.layout, host);
        if all.is_empty() {
            return;
        }
        let count = all.len();
        let at_least = model.coupling == Coupling::AtLeast;
        let scratch = &mut self.hand.rows;
        model.layout.receiving.to_rows(all, self.sums, &mut scratch.sums);
        let (sums, y) = (&scratch.sums[..count], &self.y[own.clone()]);
        let (a, b) = (&mut scratch.a[..count], &mut scratch.b[..count]);
        for at in 0..count {
            a[at] = T::of(1.0) / sums[at].inverse;
            b[at] = step::completion_slope(a[at], sums[at].sum, y[at]);
        }
        let z = &mut self.z[own.clone()];
        let before = if at_least { &self.given[own.clone()] } else { &*z };
        scratch.relaxed[..count].copy_from_slice(before);
        scratch.old[..count].copy_from_slice(z);
        let bounds = Bounds {
            weights: &[T::of(2.0 * model.beta[host])],
            cone: model.completion_row(host),
            limits: None,
            capacity: model.completion_capacity[host],
            at_least,
        };
        let price = &mut self.completing[host - self.hosts.start];
        self.hand.passes[1] += step::move_host(COMPLETIONS, &bounds, scratch, z, price);
        self.norms[host - self.hosts.start] = self.settle(own, at_least);
        if renews {
            self.flatten_completions(model, host);
        }
    }

    /// Moves the prices of one host's receivers; their edge values follow.
    #[inline(always)]
    fn settle(&mut self, own: Range<usize>, at_least: bool) -> Norms {
        let count = own.len();
        let scratch = &mut self.hand.rows;
        let (sums, z) = (&scratch.sums[..count], &self.z[own.clone()]);
        let (y, ready) = (&mut self.y[own.clone()], &mut self.ready[own.clone()]);
        let given = &mut self.given[own];
        let (penalty, gaps) = (&scratch.a[..count], &mut scratch.b[..count]);
        let turns = &mut scratch.steps[..count];
        let used = &mut scratch.relaxed[..count];
        let old = &scratch.old[..count];
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
        Norms {
            primal: sum_of_squares(gaps),
            dual: sum_of_squares(turns),
            used: sum_of_squares(used),
            given: sum_of_squares(given),
            price: sum_of_squares(y),
        }
    }

    /// Receivers' part of the penalties, from the curvatures of their utilities.
    #[inline(always)]
    fn flatten_completions(&mut self, model: &Model, host: usize) {
        let [all, own] = self.receivers(&model.layout, host);
        let cone = model.completion_row(host);
        let factor = T::of(1.0 / (6.0 * model.beta[host]));
        let (z, floor) = (&self.z[own.clone()], &self.fixed.z_floor[all.clone()]);
        let (spread, ready) = (&self.fixed.spread[all], &mut self.ready[own]);
        for at in 0..ready.len() {
            let own = step::completion_flatness(factor, z[at], floor[at]);
            (ready[at].flatness, ready[at].curvature) = (own * spread[at], T::of(1.0) / own);
        }
        let Some(cone) = cone else { return };
        let price = self.completing[host - self.hosts.start];
        for (at, ready) in ready.iter_mut().enumerate() {
            let conic = step::cone_curvature(price, Some(cone), at);
            ready.curvature += T::of(conic);
            ready.flatness = spread[at] / ready.curvature;
        }
    }
}
