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

/// Returns the instruction set that the fast form of a host's step is compiled for.
#[must_use]
pub fn isa() -> &'static str {
    if cfg!(target_feature = "avx512f") {
        "avx512"
    } else if cfg!(target_feature = "avx2") {
        "avx2"
    } else if cfg!(target_arch = "aarch64") {
        "neon"
    } else {
        "baseline"
    }
}
