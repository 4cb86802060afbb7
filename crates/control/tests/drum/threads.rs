//! What comes out depends on nothing but the problem: not on how many threads there are, nor on their registers.
use super::family::{Chance, Family};
use catchment_control::drum::{
    Coupling, Isa, Problem, Real, Residuals, Settings, Solution, Solver, Start, limit_isa,
};
use std::num::NonZero;

/// Solves with so many threads, at first with messages lost if so asked.
fn solve<T: Real>(
    problem: &Problem,
    threads: usize,
    loses: bool,
    start: Start,
) -> (Solution, Vec<Residuals>) {
    let threads = NonZero::new(threads).expect("a thread");
    let settings = Settings { gap: 1e-9, iterations: 4, start, threads, ..Settings::default() };
    let mut solver = Solver::<T>::new(problem, settings).expect("good values");
    let mut chance = Chance::new(9);
    let mut residuals = Vec::new();
    for _ in 0..3 {
        residuals.push(if loses {
            solver.iterate_with_loss(&mut |_, _, _| chance.draw() < 0.1)
        } else {
            solver.iterate()
        });
    }
    (solver.solve(), residuals)
}

fn is_same_with_threads<T: Real>(problem: &Problem, loses: bool, start: Start) {
    // Each thread has 65,536 edges at least.
    assert!(problem.edges.from.len() >= 3 << 16, "{}", problem.edges.from.len());
    let alone = solve::<T>(problem, 1, loses, start);
    assert!(alone.0.most_used <= 1.0 + 1e-6, "{}", alone.0.most_used);
    for threads in [2, 3] {
        let together = solve::<T>(problem, threads, loses, start);
        assert!(alone == together, "{threads} threads: {:?}", together.1);
    }
}

/// Several threads divide the hosts, and the edges.
#[test]
fn any_number_of_threads_comes_to_the_same_rates() {
    let two = Family::new(100, 700, 2.0, 2, 5).draw();
    is_same_with_threads::<f32>(&two, false, Start::Fair);
    is_same_with_threads::<f64>(&two, true, Start::Local);
    is_same_with_threads::<f64>(&Family::new(200, 1000, 1.0, 0, 6).draw(), false, Start::Fair);
}

#[test]
fn threads_come_to_the_same_rates_where_edges_leave_every_tile() {
    // Every application sends to the next one, too, so nothing can be swept alone.
    let mut problem = Family { limits: true, ..Family::new(100, 700, 1.0, 2, 8) }.draw();
    let applications = problem.applications as u32;
    for (from, to) in problem.edges.from.iter().zip(&mut problem.edges.to) {
        if from != to {
            *to = *to / applications * applications + (*to + 1) % applications;
        }
    }
    is_same_with_threads::<f64>(&problem, false, Start::Local);
}

#[test]
fn threads_come_to_the_same_rates_with_preemption_and_unused_completions() {
    let family =
        Family { preempts: true, coupling: Coupling::AtLeast, ..Family::new(60, 1200, 1.0, 2, 8) };
    is_same_with_threads::<f64>(&family.draw(), false, Start::Local);
}

#[test]
fn instruction_sets_come_to_the_same_rates() {
    let problems = [1.0, 2.0, 5.0].map(|alpha| Family::new(40, 37, alpha, 2, 3).draw());
    let solved = |most| {
        // Others of this process have the same results meanwhile: that is what is claimed here.
        limit_isa(most);
        let wide = problems.each_ref().map(|problem| solve::<f64>(problem, 1, false, Start::Local));
        let narrow = problems.each_ref().map(|problem| solve::<f32>(problem, 1, true, Start::Fair));
        limit_isa(Isa::Widest);
        (wide, narrow)
    };
    let widest = solved(Isa::Widest);
    assert!(solved(Isa::Avx2) == widest);
    assert!(solved(Isa::Baseline) == widest);
}
