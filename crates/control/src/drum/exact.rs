//! The optimum of hosts that do not depend on each other, without rounds.
use super::bound::Bound;
use super::flow::Flow;
use super::model::Model;
use super::problem::{Coupling, Problem, ProblemError};
use super::recover::{Allocation, Recovery};
use super::solution::{HostPrices, Solution, Status, assemble};
use super::start::LocalRows;
use super::state::Residuals;
use super::utility::completion_marginal;
use std::num::NonZero;

/// Solves a one-sided problem exactly, host by host, and returns each host's prices beside it.
/// `iterations` of the solution are passes over a host's applications, on average.
///
/// # Errors
/// As [`Problem::check`]; [`ProblemError::NotOneSided`] with edges between hosts, preemption or
/// completions that may be left unused, which take rounds ([`super::Solver`]).
pub fn solve_exactly(problem: &Problem) -> Result<(Solution, Vec<HostPrices>), ProblemError> {
    let model = Model::new(problem, NonZero::<usize>::MIN)?;
    let linear = model.send_cone.is_none() && model.completion_cone.is_none();
    if !(model.layout.one_sided && linear && model.coupling == Coupling::Equal) {
        return Err(ProblemError::NotOneSided);
    }
    let mut x = vec![0.0; model.layout.senders.len()];
    let mut prices = Vec::new();
    let own = model.own_edges();
    let mut passes = 0;
    for host in 0..model.layout.hosts {
        let range = model.layout.sent_by(host);
        let rows = LocalRows::new(&model, &own, host, 0.0);
        let (found, of_host) = rows.solve(&model, host, &mut x[range]);
        passes += of_host;
        prices.push((found.send, found.complete));
    }
    let mut recovery = Recovery::new(&model);
    recovery.recover(&model, x.iter().copied());
    let price = |to: usize| {
        let host = model.layout.host_of_receiver(to);
        prices[host].1 - completion_marginal(model.beta[host], recovery.z[to])
    };
    let best = Allocation::of(&recovery);
    let (x, z) = (|at: usize| best.x[at], |at: usize| best.z[at]);
    let mut flow = Flow::new(&model.layout);
    let bound = Bound::new(&model).bound(&model, &mut flow, price, x, z, |host| prices[host]);
    let bound = model.unscale(bound);
    let passes = passes.div_ceil(model.layout.hosts);
    let residuals = Residuals::default();
    let solution =
        assemble(&model, &best, bound, 1e-9, (passes, residuals), Status::IterationLimit);
    Ok((solution, prices.into_iter().map(|pair| HostPrices::of(&model, pair)).collect()))
}
