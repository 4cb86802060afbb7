//! Every instance of the public oracle, against the optimum that another solver found.
//!
//! `data/oracle_public.json` is drawn from the family of the project's numpy prototype; its optima are
//! CVXPY's with Clarabel and those of a log-barrier Newton method, which agree to 1e-8.
use catchment_control::drum::format::{Instance, Oracle};
use catchment_control::drum::{Real, Settings, Sided, Solution, Solver, Start};

const TEXT: &str = include_str!("data/oracle_public.json");

pub(crate) fn instances() -> Vec<Instance> {
    Oracle::read(TEXT).expect("the file is of the format").instances
}

/// Solves an instance, with every iteration recovered and measured.
fn solve<T: Real>(instance: &Instance, gap: f64, over: f64) -> Solution {
    let problem = instance.problem().expect("a problem");
    let start = if problem.sided() == Sided::One { Start::Fair } else { Start::Local };
    let settings = Settings { start, ..Settings::default() };
    let mut solver = Solver::<T>::new(&problem, settings).expect("good values");
    for _ in 0..2000 {
        let residuals = solver.iterate();
        let objective = solver.recover();
        assert!(solver.most_used() <= 1.0 + over, "{}: {}", instance.id, solver.most_used());
        let bound = solver.certify();
        let certified = (bound - objective.value()) / objective.magnitude;
        if certified <= gap && (residuals.relative <= 1e-8 || gap > 1e-9 || certified <= 1e-13) {
            break;
        }
    }
    solver.best()
}

fn check<T: Real>(instance: &Instance, gap: f64, over: f64, enough: f64) {
    let optimum = instance.optimum.as_ref().expect("an optimum");
    let scale = optimum.abs_scale.expect("a scale");
    let solution = solve::<T>(instance, gap, over);
    let error = (solution.objective.value() - optimum.objective).abs();
    assert!(error <= enough * scale, "{}: {error} of {scale}", instance.id);
    assert!(solution.certified_gap() <= enough, "{}: {}", instance.id, solution.certified_gap());
    if enough <= 1e-6 {
        let most = optimum.x.iter().copied().fold(0.0, f64::max);
        let tolerance = optimum.x_uncertainty_rel.unwrap_or(0.0).max(1e-4) * most;
        for (at, (x, expected)) in solution.x.iter().zip(&optimum.x).enumerate() {
            assert!((x - expected).abs() <= tolerance, "{} x[{at}]: {x}, {expected}", instance.id);
        }
    }
}

#[test]
fn every_instance_is_solved_within_its_tolerances_in_f64() {
    for instance in instances().iter().filter(|instance| instance.kind.is_none()) {
        check::<f64>(instance, 1e-10, 1e-12, 1e-6);
    }
}

#[test]
fn every_instance_is_solved_to_1e_4_in_f32() {
    for instance in instances().iter().filter(|instance| instance.kind.is_none()) {
        check::<f32>(instance, 1e-6, 1e-6, 1e-4);
    }
}

#[test]
fn an_instance_that_is_written_is_read_as_the_same_problem() {
    for instance in instances() {
        let problem = instance.problem().expect("a problem");
        let text =
            Oracle::of(vec![Instance::of(instance.id, &problem)]).write().expect("finite values");
        let again = Oracle::read(&text).expect("what was written").instances[0].problem();
        assert_eq!(again.expect("a problem"), problem);
    }
}

#[test]
fn what_is_no_instance_is_refused_with_its_value() {
    let other = TEXT.replacen("drum-oracle/1", "drum-oracle/2", 1);
    assert!(
        Oracle::read(&other).expect_err("another version").to_string().contains("drum-oracle/2")
    );
    let mut instance = instances().remove(0);
    instance.coupling = "lt".to_owned();
    assert!(instance.problem().expect_err("no coupling").to_string().contains("\"lt\""));
    instance.coupling = "eq".to_owned();
    instance.edges[3].2 = 99;
    assert!(instance.problem().expect_err("no host").to_string().contains("99"));
}
