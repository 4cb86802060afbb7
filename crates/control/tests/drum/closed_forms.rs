//! What is known without a solver.
use super::family::{Chance, Family};
use catchment_control::drum::{
    Coupling, Edges, Preemption, Problem, ProblemError, Settings, Solver, completion_marginal,
    marginal, max_min, rate_at, solve_exactly, utility,
};

/// One host with three applications and ample completions.
fn three(alpha: f64, weights: [f64; 3], capacity: f64) -> Problem {
    let mut edges = Edges::default();
    (0..3).for_each(|at| edges.push(at, at, 0.5));
    Problem {
        hosts: 1,
        applications: 3,
        alpha,
        weights: weights.to_vec(),
        beta: vec![0.0],
        send_capacity: vec![capacity],
        completion_capacity: vec![10.0 * capacity],
        edges,
        coupling: Coupling::Equal,
        send_preemption: None,
        completion_preemption: None,
        limits: None,
    }
}

fn near(found: &[f64], expected: &[f64], tolerance: f64) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance * expected, "{found}, {expected}");
    }
}

/// S5.11.
#[test]
fn three_flows_share_as_their_closed_forms_say() {
    let weights = [1.0, 2.0, 5.0];
    // Lagrange: w x^-alpha is the same for all, so x is in proportion to w^(1/alpha).
    for (alpha, parts) in
        [(1.0, weights), (2.0, weights.map(f64::sqrt)), (0.5, weights.map(|w| w * w))]
    {
        let total: f64 = parts.iter().sum();
        let expected = parts.map(|part| 40.0 * part / total);
        let problem = three(alpha, weights, 40.0);
        near(&solve_exactly(&problem).expect("a problem").0.x, &expected, 1e-9);
        let settings = Settings { gap: 1e-13, iterations: 400, ..Settings::default() };
        let solution = Solver::<f64>::new(&problem, settings).expect("a problem").solve();
        near(&solution.x, &expected, 1e-6);
    }
}

/// S5.11, where alpha is infinite.
#[test]
fn max_min_fills_in_proportion_to_weights_and_the_rest_goes_on() {
    let mut problem = three(f64::INFINITY, [1.0, 2.0, 5.0], 40.0);
    near(&max_min(&problem).expect("a problem"), &[5.0, 10.0, 25.0], 1e-9);
    problem.limits = Some(vec![100.0, 4.0, 100.0]);
    near(&max_min(&problem).expect("a problem"), &[6.0, 4.0, 30.0], 1e-9);
    // One fills its completions first: it stops there, and the others share what it left.
    problem.limits = None;
    problem.completion_capacity[0] = 16.0;
    problem.edges = Edges::default();
    problem.edges.push(2, 2, 1.0);
    near(&max_min(&problem).expect("a problem"), &[8.0, 16.0, 16.0], 1e-9);
}

#[test]
fn rounds_of_messages_refuse_max_min_by_name() {
    let problem = three(f64::INFINITY, [1.0; 3], 1.0);
    let refused =
        Solver::<f64>::new(&problem, Settings::default()).map(|_| ()).expect_err("no alpha");
    assert_eq!(refused, ProblemError::MaxMin);
    assert!(refused.to_string().contains("progressive filling"), "{refused}");
}

#[test]
fn a_large_alpha_comes_near_to_max_min() {
    let mut problem = Family::new(4, 6, 5.0, 2, 3).draw();
    problem.beta.fill(0.0);
    problem.weights.fill(1.0);
    let filled = max_min(&problem).expect("a problem");
    let least = |x: &[f64]| x.iter().copied().fold(f64::INFINITY, f64::min);
    let at = |alpha: f64| {
        let problem = Problem { alpha, ..problem.clone() };
        least(&Solver::<f64>::new(&problem, Settings::default()).expect("a problem").solve().x)
    };
    let (one, five, most) = (at(1.0), at(5.0), least(&filled));
    assert!(one < five && five <= most * (1.0 + 1e-9), "{one}, {five}, {most}");
}

/// S5.12: also that of `-beta / z^2`.
#[test]
fn derivatives_are_those_of_the_utilities() {
    let difference =
        |f: &dyn Fn(f64) -> f64, x: f64| (f(x * 1.00001) - f(x * 0.99999)) / (0.00002 * x);
    for x in [0.03, 0.7, 1.0, 4.0, 90.0] {
        for alpha in [0.5, 1.0, 1.3, 2.0, 3.0, 5.0] {
            let expected = difference(&|x| utility(alpha, x), x);
            near(&[marginal(alpha, x)], &[expected], 1e-6);
            near(&[rate_at(alpha, marginal(alpha, x))], &[x], 1e-12);
        }
        let expected = difference(&|z| -0.3 / (z * z), x);
        near(&[completion_marginal(0.3, x)], &[expected], 1e-6);
    }
}

/// Draws points of the ball's surface, and improves the worst by small turns.
fn worst_use(cone: &Preemption, x: &[f64], chance: &mut Chance) -> f64 {
    let use_at = |u: &[f64]| -> f64 {
        let norm = u.iter().map(|u| u * u).sum::<f64>().sqrt();
        (0..x.len()).map(|at| (cone.reserved[at] + cone.uncertain[at] * u[at] / norm) * x[at]).sum()
    };
    let mut worst = vec![1.0; x.len()];
    for round in 0..40_000 {
        let width = if round < 4_000 { 1.0 } else { 4_000.0 / f64::from(round) * 0.3 };
        let turned: Vec<f64> =
            worst.iter().map(|u| u + width * chance.between(-1.0, 1.0)).collect();
        if use_at(&turned) > use_at(&worst) {
            worst = turned;
        }
    }
    use_at(&worst)
}

/// S5.15: against points of the ellipsoid that a search makes as bad as it can.
#[test]
fn a_preemptible_capacity_holds_in_the_worst_case_and_no_more_is_kept_free() {
    let mut family = Family::new(2, 5, 1.0, 0, 11);
    family.preempts = true;
    let problem = family.draw();
    let settings = Settings { gap: 1e-9, iterations: 500, ..Settings::default() };
    let solution = Solver::<f64>::new(&problem, settings).expect("a problem").solve();
    let mut chance = Chance::new(5);
    for host in 0..2 {
        let row = host * 5..(host + 1) * 5;
        let part = |cone: &Option<Preemption>| {
            let cone = cone.as_ref().expect("a cone");
            Preemption {
                reserved: cone.reserved[row.clone()].to_vec(),
                uncertain: cone.uncertain[row.clone()].to_vec(),
            }
        };
        let sent =
            worst_use(&part(&problem.send_preemption), &solution.x[row.clone()], &mut chance);
        let completed =
            worst_use(&part(&problem.completion_preemption), &solution.z[row.clone()], &mut chance);
        let used =
            (sent / problem.send_capacity[host]).max(completed / problem.completion_capacity[host]);
        assert!((1.0 - 1e-4..=1.0 + 1e-9).contains(&used), "host {host}: {used}");
    }
}

/// S5.14, the capacities as they are here, `sum x <= q`: the conditions of Karush, Kuhn and Tucker hold within 1e-8.
#[test]
fn rates_of_a_host_and_their_prices_fulfil_the_conditions_of_an_optimum() {
    for (seed, alpha) in (0..40).zip([0.5, 1.0, 1.5, 2.0, 5.0].into_iter().cycle()) {
        let problem = Family::new(3, 9, alpha, 0, seed).draw();
        let (found, prices) = solve_exactly(&problem).expect("one-sided");
        for (host, price) in prices.iter().enumerate() {
            let row = host * 9..(host + 1) * 9;
            assert!(price.send >= 0.0 && price.complete >= 0.0, "{price:?}");
            for at in row.clone() {
                let own = problem.edges.from.iter().position(|from| *from as usize == at);
                let share = problem.edges.completions[own.expect("its completions")];
                let gain = problem.weights[at] * marginal(alpha, found.x[at])
                    + share * completion_marginal(problem.beta[host], found.z[at]);
                near(&[price.send + share * price.complete], &[gain], 1e-8);
                near(&[found.z[at]], &[share * found.x[at]], 1e-12);
            }
            let left = |rates: &[f64], capacity: f64| 1.0 - rates.iter().sum::<f64>() / capacity;
            let slack = [
                (left(&found.x[row.clone()], problem.send_capacity[host]), price.send),
                (left(&found.z[row], problem.completion_capacity[host]), price.complete),
            ];
            for (left, price) in slack {
                assert!(left >= -1e-12 && (left <= 1e-8 || price <= 1e-8), "{left} at {price}");
            }
        }
    }
}
