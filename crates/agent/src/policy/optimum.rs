//! The optimum of one host, from the weights of its applications.
use catchment_control::drum::{Coupling, Edges, Problem, ProblemError, solve_exactly};

/// The optimum of one host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Optimum {
    /// The part of the device of each application while all have something to send.
    pub shares: Vec<f64>,
    /// What the device's sending is worth: utility that the whole of it once more would add, at this rate.
    pub price: f64,
}

/// Returns the optimal part of the device of each application, from their weights.
///
/// # Errors
/// As [`Problem::check`].
pub fn optimum(weights: &[f64], alpha: f64) -> Result<Optimum, ProblemError> {
    if weights.is_empty() {
        return Ok(Optimum::default());
    }
    let mut edges = Edges::default();
    (0..weights.len()).for_each(|at| edges.push(at, at, 1.0));
    let problem = Problem {
        hosts: 1,
        applications: weights.len(),
        alpha,
        weights: weights.to_vec(),
        // What waits in completion queues is not the bottleneck of one agent: only sending is.
        beta: vec![0.0],
        send_capacity: vec![1.0],
        completion_capacity: vec![2.0],
        edges,
        coupling: Coupling::Equal,
        send_preemption: None,
        completion_preemption: None,
        limits: None,
    };
    let (solution, prices) = solve_exactly(&problem)?;
    Ok(Optimum { shares: solution.x, price: prices.first().map_or(0.0, |host| host.send) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_optimum_of_the_host() {
        let close = |got: &[f64], expected: &[f64]| {
            got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
        };
        let shares = |weights: &[f64], alpha| optimum(weights, alpha).unwrap().shares;
        assert!(close(&shares(&[3.0, 1.0], 1.0), &[0.75, 0.25]));
        let root = 3f64.sqrt() / (3f64.sqrt() + 1.0);
        assert!(close(&shares(&[3.0, 1.0], 2.0), &[root, 1.0 - root]));
        assert!(shares(&[], 1.0).is_empty());
        // The marginal utility of each: w / x.
        assert!((optimum(&[3.0, 1.0], 1.0).unwrap().price - 4.0).abs() < 1e-6);
    }
}
