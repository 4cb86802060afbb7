//! Rounds of a host whose completions are all its own: the steps of [`super::rounds`] with one edge for
//! each application, in rows that stay in the nearest cache. Messages to oneself are not lost.
use super::joint::sum_of_squares;
use super::model::Model;
use super::real::Real;
use super::rows::{HostStep, Rows};
use super::state::Norms;
use super::step::{self, Bounds, COMPLETIONS, Sender, Told};
use super::utility::Power;
use std::ops::Range;

/// A whole round of a host alone.
#[derive(Clone, Copy)]
pub(super) struct Own<'a, P> {
    pub(super) model: &'a Model,
    pub(super) power: P,
    pub(super) renews: bool,
}

impl<T: Real, P: Power> HostStep<T> for Own<'_, P> {
    #[inline(always)]
    fn take(self, rows: &mut Rows<'_, T>, host: usize) {
        rows.own(self.model, self.power, host, self.renews);
    }
}

impl<T: Real> Rows<'_, T> {
    /// One round of a host: its senders' step, then its receivers'.
    #[inline(always)]
    fn own<P: Power>(&mut self, model: &Model, power: P, host: usize, renews: bool) {
        let [all, own] = self.senders(&model.layout, host);
        if all.is_empty() {
            return;
        }
        if renews {
            self.renew_own(model, power, host);
        }
        let count = all.len();
        let rho = &self.rho[own.clone()];
        let completions = &self.fixed.completions[all.clone()];
        let (prices, values) = (&mut self.y[own.clone()], &mut self.z[own.clone()]);
        let scratch = &mut self.hand.rows;
        let (a, b) = (&mut scratch.a[..count], &mut scratch.b[..count]);
        for at in 0..count {
            let told = Told { price: prices[at], value: values[at], ..Told::default() };
            let mut sums = Sender::default();
            sums.add(rho[at], completions[at], told);
            (a[at], b[at]) = (sums.a, sums.b);
        }
        let bounds = Bounds {
            weights: &self.fixed.weights[all.clone()],
            cone: None,
            limits: None,
            capacity: model.send_capacity[host],
            at_least: false,
        };
        let x = &mut self.x[own.clone()];
        let row = host - self.hosts.start;
        self.hand.passes[0] += step::move_host(power, &bounds, scratch, x, &mut self.sending[row]);
        let (a, b) = (&mut scratch.a[..count], &mut scratch.b[..count]);
        let (relaxed, old) = (&mut scratch.relaxed[..count], &mut scratch.old[..count]);
        for at in 0..count {
            relaxed[at] = step::relax(completions[at] * x[at], values[at]);
            // One edge: the receiver's penalty is the edge's.
            (a[at], b[at]) = (rho[at], step::completion_slope(rho[at], relaxed[at], prices[at]));
        }
        old.copy_from_slice(values);
        let bounds = Bounds {
            weights: &[T::of(2.0 * model.beta[host])],
            capacity: model.completion_capacity[host],
            ..bounds
        };
        let price = &mut self.completing[row];
        self.hand.passes[1] += step::move_host(COMPLETIONS, &bounds, scratch, values, price);
        let relaxed = &scratch.relaxed[..count];
        for at in 0..count {
            // The edge value is what is given: nothing is left to share out.
            prices[at] += step::move_of_price(rho[at], relaxed[at], values[at]);
        }
        self.norms[row] = self.own_norms(all, own);
    }

    /// Renews the penalties from the curvatures of both ends.
    #[inline(always)]
    fn renew_own<P: Power>(&mut self, model: &Model, power: P, host: usize) {
        let [all, own] = self.senders(&model.layout, host);
        let beta = T::of(1.0 / (6.0 * model.beta[host]));
        let rho = &mut self.rho[own.clone()];
        let (x, x_floor) = (&self.x[own.clone()], &self.fixed.x_floor[all.clone()]);
        let (z, z_floor) = (&self.z[own], &self.fixed.z_floor[all.clone()]);
        let flat = &self.fixed.flat[all.clone()];
        let completions = &self.fixed.completions[all];
        for at in 0..rho.len() {
            let rates = step::rate_flatness(power, flat[at], x[at], x_floor[at]);
            let own = step::completion_flatness(beta, z[at], z_floor[at]);
            rho[at] = T::of(1.0) / (rates * completions[at]).or_smaller(own);
        }
    }

    #[inline(always)]
    fn own_norms(&mut self, all: Range<usize>, own: Range<usize>) -> Norms {
        let count = own.len();
        let (x, z) = (&self.x[own.clone()], &self.z[own.clone()]);
        let (y, rho) = (&self.y[own.clone()], &self.rho[own]);
        let completions = &self.fixed.completions[all];
        let scratch = &mut self.hand.rows;
        let turns = &mut scratch.steps[..count];
        let old = &scratch.old[..count];
        for at in 0..count {
            turns[at] = completions[at] * x[at] - z[at];
        }
        let primal = sum_of_squares(turns);
        for at in 0..count {
            turns[at] = rho[at] * (z[at] - old[at]);
        }
        let dual = sum_of_squares(turns);
        Norms { primal, dual, used: 0.0, given: sum_of_squares(z), price: sum_of_squares(y) }
    }
}
