//! Rounds one by one: how many it takes, with messages lost, and after a change.
use super::family::{Chance, Family};
use super::oracle::instances;
use catchment_control::drum::{Objective, Settings, Sided, Solver, Start, Status};

/// Returns the first iteration from which on a run of 60 stays within half a percent of the optimum.
fn iterations_to_995(instance: &catchment_control::drum::format::Instance) -> usize {
    let problem = instance.problem().expect("a problem");
    let known = instance.optimum.as_ref().expect("an optimum");
    let optimum = Objective {
        rates: known.f.expect("f"),
        completions: known.g.expect("g"),
        magnitude: known.abs_scale.expect("a scale"),
        weights: problem.weights.iter().sum(),
    };
    let start = if problem.sided() == Sided::One { Start::Fair } else { Start::Local };
    let settings = Settings { start, ..Settings::default() };
    let mut solver = Solver::<f64>::new(&problem, settings).expect("good values");
    let mut first = 1;
    for iteration in 1..=60 {
        solver.iterate();
        let value = solver.recover().value();
        let gap = (optimum.value() - value) / optimum.magnitude;
        if gap.max(optimum.rate_loss(problem.alpha, value)) > 0.005 {
            first = iteration + 1;
        }
    }
    first
}

#[test]
fn ten_rounds_are_enough_for_nine_tenths_of_the_oracle() {
    let all = instances();
    let solved = all.iter().filter(|instance| instance.kind.is_none());
    let counts: Vec<usize> = solved.map(iterations_to_995).collect();
    let within = counts.iter().filter(|count| **count <= 10).count();
    assert!(10 * within >= 9 * counts.len(), "{counts:?}");
    // One small preemptive instance takes more than the 20 that are wanted of each.
    assert!(counts.iter().filter(|count| **count > 20).count() <= 1, "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 25), "{counts:?}");
}

/// S5.20.
#[test]
fn rates_fit_and_converge_while_a_tenth_of_the_messages_is_lost() {
    for alpha in [0.5, 1.0, 2.0, 5.0] {
        let problem = Family::new(30, 20, alpha, 2, 21).draw();
        let settings = Settings { gap: 1e-7, iterations: 1000, ..Settings::default() };
        let best = Solver::<f64>::new(&problem, settings).expect("good values").solve();
        assert_eq!(best.status, Status::Solved, "alpha {alpha}: {}", best.certified_gap());
        let mut solver = Solver::<f64>::new(&problem, settings).expect("good values");
        let mut chance = Chance::new(4);
        for round in 1..=40 {
            solver.iterate_with_loss(&mut |_, _, _| chance.draw() < 0.1);
            let value = solver.recover().value();
            assert!(solver.most_used() <= 1.0 + 1e-12, "alpha {alpha}: {}", solver.most_used());
            let gap = (best.objective.value() - value) / best.objective.magnitude;
            assert!(round < 20 || gap <= 2e-3, "alpha {alpha}, round {round}: {gap}");
        }
    }
}

#[test]
fn without_loss_the_copies_of_both_ends_change_nothing() {
    for degree in [0, 2] {
        let problem = Family::new(12, 8, 2.0, degree, 5).draw();
        let settings = Settings { start: Start::Fair, ..Settings::default() };
        let mut plain = Solver::<f64>::new(&problem, settings).expect("good values");
        let mut copied = plain.clone();
        for _ in 0..20 {
            plain.iterate();
            copied.iterate_with_loss(&mut |_, _, _| false);
            let (plain, copied) = (plain.recover(), copied.recover());
            let error = (plain.value() - copied.value()).abs() / plain.magnitude;
            assert!(error <= 1e-9, "degree {degree}: {error}");
        }
    }
}

#[test]
fn after_a_change_rates_fit_the_new_capacities_and_reach_the_new_optimum() {
    let before = Family::new(20, 10, 1.0, 2, 9).draw();
    let settings = Settings { gap: 1e-6, iterations: 500, ..Settings::default() };
    let mut solver = Solver::<f64>::new(&before, settings).expect("good values");
    solver.solve();
    let mut after = before.clone();
    after.completion_capacity[3] *= 0.2;
    after.weights[7] *= 4.0;
    let fresh = Solver::<f64>::new(&after, settings).expect("good values").solve();
    solver.change(&after).expect("the same applications");
    assert!(solver.best().most_used <= 1.0 + 1e-12);
    let warm = solver.solve();
    assert_eq!(warm.status, Status::Solved);
    assert!(warm.most_used <= 1.0 + 1e-12);
    let error =
        (warm.objective.value() - fresh.objective.value()).abs() / fresh.objective.magnitude;
    assert!(error <= 2e-6, "{error}");
    // Another number of edges is another problem.
    let mut other = after.clone();
    other.edges.push(0, 11, 0.5);
    let refused = solver.change(&other).expect_err("one edge more");
    assert!(refused.to_string().contains("edges"), "{refused}");
}

/// S5.19: rounds end once both residuals are at most so much for each rate, and no earlier; a solution tells both, and by its
/// certificate how far the optimum may be.
#[test]
fn s5_19_rounds_end_by_both_residuals() {
    for (seed, alpha) in [(3, 2.0), (4, 1.0), (5, 0.5)] {
        let problem = Family::new(20, 10, alpha, 2, seed).draw();
        let rates = problem.weights.iter().filter(|weight| **weight > 0.0).count();
        for each in [1e-3, 1e-5, 1e-7] {
            let settings = Settings { gap: 0.0, residual: Some(each), ..Settings::default() };
            let settings = Settings { iterations: 5000, ..settings };
            let mut solver = Solver::<f64>::new(&problem, settings).expect("good values");
            let is_small = |residual: f64| residual <= each * rates as f64;
            let solution = solver.solve();
            assert_eq!(solution.status, Status::Calm, "{each}: {solution:?}");
            let last = solution.residuals;
            assert!(is_small(last.primal) && is_small(last.dual), "{each}: {last:?}");
            assert!(solution.certified_gap() <= 1e3 * each, "{}", solution.certified_gap());
            let mut again = Solver::<f64>::new(&problem, settings).expect("good values");
            for _ in 1..solution.iterations {
                let before = again.iterate();
                assert!(!is_small(before.primal) || !is_small(before.dual), "{each}: {before:?}");
            }
        }
    }
}

/// S5.19: both residuals fall where it is the certificate that ends the rounds.
#[test]
fn a_solution_tells_both_residuals() {
    let problem = Family::new(20, 10, 2.0, 2, 3).draw();
    let settings = Settings { gap: 1e-9, iterations: 2000, ..Settings::default() };
    let mut solver = Solver::<f64>::new(&problem, settings).expect("good values");
    let first = solver.iterate();
    let solution = solver.solve();
    assert_eq!(solution.status, Status::Solved);
    let last = solution.residuals;
    assert!(first.primal > 0.0 && first.dual > 0.0, "{first:?}");
    assert!(last.primal <= 1e-3 * first.primal && last.dual <= 1e-3 * first.dual, "{last:?}");
    assert!(last.primal <= 1e-4 * problem.weights.len() as f64, "{last:?}");
}
