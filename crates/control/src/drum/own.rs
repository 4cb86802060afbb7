//! Rounds of a host whose completions are all its own: the steps of [`super::rounds`] with one edge for
//! each application, in rows that stay in the nearest cache. Messages to oneself are not lost.
use super::joint::sum_of_squares;
use super::model::Model;
use super::problem::Coupling;
use super::real::Real;
use super::rounds::{Norms, Rounds};
use super::step::{self, Bounds, COMPLETIONS, RENEWALS, Sender, Told};
use super::utility::Power;

impl<T: Real> Rounds<T> {
    /// Whether every host has only its linear capacities.
    pub(super) fn is_plain(&self, model: &Model) -> bool {
        let linear = model.send_cone.is_none() && model.completion_cone.is_none();
        linear && model.coupling == Coupling::Equal && model.limits.is_none()
    }

    /// One round of a host: its senders' step, then its receivers'.
    #[inline(always)]
    pub(super) fn own<P: Power>(
        &mut self,
        model: &Model,
        power: P,
        host: usize,
        norms: &mut Norms,
    ) {
        let range = model.layout.sent_by(host);
        if range.is_empty() {
            return;
        }
        if self.round <= RENEWALS + 1 {
            self.renew_own(model, power, host);
        }
        let count = range.len();
        let rho = &self.rho[range.clone()];
        let completions = &self.completions[range.clone()];
        let (prices, values) = (&mut self.y[range.clone()], &mut self.z[range.clone()]);
        let (a, b) = (&mut self.scratch.a[..count], &mut self.scratch.b[..count]);
        for at in 0..count {
            let told = Told { price: prices[at], value: values[at], ..Told::default() };
            let mut sums = Sender::default();
            sums.add(rho[at], completions[at], told);
            (a[at], b[at]) = (sums.a, sums.b);
        }
        let bounds = Bounds {
            weights: &self.weights[range.clone()],
            cone: None,
            limits: None,
            capacity: model.send_capacity[host],
            at_least: false,
        };
        let x = &mut self.x[range.clone()];
        let price = &mut self.sending[host];
        self.passes[0] += step::move_host(power, &bounds, &mut self.scratch, x, price);
        let (a, b) = (&mut self.scratch.a[..count], &mut self.scratch.b[..count]);
        let (relaxed, old) = (&mut self.scratch.relaxed[..count], &mut self.scratch.old[..count]);
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
        let price = &mut self.completing[host];
        self.passes[1] += step::move_host(COMPLETIONS, &bounds, &mut self.scratch, values, price);
        let relaxed = &self.scratch.relaxed[..count];
        for at in 0..count {
            // The edge value is what is given: nothing is left to share out.
            prices[at] += step::move_of_price(rho[at], relaxed[at], values[at]);
        }
        self.add_norms(host, model, norms);
    }

    /// Renews the penalties from the curvatures of both ends.
    #[inline(always)]
    fn renew_own<P: Power>(&mut self, model: &Model, power: P, host: usize) {
        let range = model.layout.sent_by(host);
        let beta = T::of(1.0 / (6.0 * model.beta[host]));
        let rho = &mut self.rho[range.clone()];
        let (x, x_floor) = (&self.x[range.clone()], &self.x_floor[range.clone()]);
        let (z, z_floor) = (&self.z[range.clone()], &self.z_floor[range.clone()]);
        let flat = &self.flat[range.clone()];
        let completions = &self.completions[range];
        for at in 0..rho.len() {
            let rates = step::rate_flatness(power, flat[at], x[at], x_floor[at]);
            let own = step::completion_flatness(beta, z[at], z_floor[at]);
            rho[at] = T::of(1.0) / (rates * completions[at]).or_smaller(own);
        }
    }

    #[inline(always)]
    fn add_norms(&mut self, host: usize, model: &Model, norms: &mut Norms) {
        let range = model.layout.sent_by(host);
        let count = range.len();
        let (x, z) = (&self.x[range.clone()], &self.z[range.clone()]);
        let (y, rho) = (&self.y[range.clone()], &self.rho[range.clone()]);
        let completions = &self.completions[range];
        let turns = &mut self.scratch.steps[..count];
        let old = &self.scratch.old[..count];
        for at in 0..count {
            turns[at] = completions[at] * x[at] - z[at];
        }
        norms.primal += sum_of_squares(turns);
        for at in 0..count {
            turns[at] = rho[at] * (z[at] - old[at]);
        }
        norms.dual += sum_of_squares(turns);
        norms.given += sum_of_squares(z);
        norms.price += sum_of_squares(y);
    }
}
