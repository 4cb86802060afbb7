//! 100 random problems, against an independent solver.
use super::conic;
use super::family::{Family, Spread};
use catchment_control::drum::{Coupling, Settings, Solver, Status};
use clarabel::solver::SolverStatus;

fn family(seed: u64) -> Family {
    let at = seed as usize;
    let mut family =
        Family::new(1 + at % 4, 3 + at % 5, [0.5, 1.0, 2.0, 5.0, 1.5][at % 5], at / 2 % 4, seed);
    family.spread = if at.is_multiple_of(3) { Spread::Decades } else { Spread::Powers };
    family.beta_hat = [0.1, 0.01, 0.5][at % 3];
    family.most_batch = [4, 16][at % 2];
    family.preempts = at % 4 == 1;
    family.limits = at % 7 == 2;
    family.coupling = if at % 8 == 6 { Coupling::AtLeast } else { Coupling::Equal };
    family
}

/// S5.16, S5.17, S5.18: those with messages between hosts and with batches too, within 1e-6.
#[test]
fn a_hundred_random_problems_have_the_optimum_of_an_interior_point_solver() {
    let mut accurate = 0;
    for seed in 0..100 {
        let problem = family(seed).draw();
        let (status, optimum) = conic::optimum(&problem);
        let settings = Settings { gap: 1e-7, iterations: 20_000, ..Settings::default() };
        let solution = Solver::<f64>::new(&problem, settings).expect("good values").solve();
        assert_eq!(solution.status, Status::Solved, "seed {seed}: {}", solution.certified_gap());
        assert!(solution.most_used <= 1.0 + 1e-12, "seed {seed}: {}", solution.most_used);
        let error = (solution.objective.value() - optimum).abs() / solution.objective.magnitude;
        assert!(error <= 1e-6, "seed {seed}: {error}, {status:?}");
        accurate += usize::from(status == SolverStatus::Solved);
    }
    assert!(accurate >= 90, "the other solver is sure of {accurate} only");
}
