//! DRUM: rates of applications that share hosts, fair and optimal.
mod bound;
mod check;
mod direct;
mod exact;
mod fill;
mod filling;
pub mod format;
mod joint;
mod layout;
mod model;
mod own;
mod problem;
mod real;
mod recover;
mod root;
mod rounds;
mod solution;
mod solver;
mod start;
mod step;
mod topk;
mod utility;

pub use exact::solve_exactly;
pub use filling::max_min;
pub use model::Objective;
pub use problem::{Coupling, Edges, Preemption, Problem, ProblemError, Sided};
pub use real::Real;
pub use rounds::Residuals;
pub use solution::{Fitter, HostPrices, Solution, Status};
pub use solver::{Loss, Settings, Solver};
pub use start::Start;
pub use topk::{
    Candidates, Choice, ChoiceError, Fifo, Rotation, Score, Selector, SmallestFirst, TopK, Weight,
};
pub use utility::{completion_marginal, marginal, rate_at, utility};

/// Returns the instruction set that rounds use on this processor.
#[must_use]
pub fn isa() -> &'static str {
    match pulp::Arch::new() {
        #[cfg(target_arch = "x86_64")]
        pulp::Arch::V4(_) => "avx512",
        #[cfg(target_arch = "x86_64")]
        pulp::Arch::V3(_) => "avx2",
        #[cfg(target_arch = "aarch64")]
        pulp::Arch::Neon(_) => "neon",
        _ => "baseline",
    }
}
