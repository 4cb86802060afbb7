//! DRUM: rates of applications that share hosts, fair and optimal.
//!
//! - [`Problem`]: hosts, applications, weights, capacities, and which rate uses which completions.
//! - [`Solver`]: rounds of all hosts, from a start to a certificate.
//! - [`solve_exactly`]: hosts that do not depend on each other, without rounds.
//! - [`max_min`]: progressive filling, for an alpha without bound.
//! - [`TopK`] and its [`Selector`]s: who gets a queue pair of its own.
//! - [`Host`]: the same steps as a state machine of one host, and its messages.
//! - [`Working`]: what a host can send, where that turns out to be less than was stated.
//! - [`mod@format`]: problems with known optima, `drum-oracle/1`.
//!
//! ```
//! use catchment_control::drum::{Coupling, Edges, Problem, Settings, Solver, Status};
//!
//! // Two hosts with one application each; the first sends half of its traffic to the second.
//! let mut edges = Edges::default();
//! edges.push(0, 0, 1.0);
//! edges.push(0, 1, 0.5);
//! edges.push(1, 1, 1.0);
//! let problem = Problem {
//!     hosts: 2,
//!     applications: 1,
//!     alpha: 1.0,
//!     weights: vec![1.0, 3.0],
//!     beta: vec![0.01; 2],
//!     send_capacity: vec![10.0; 2],
//!     completion_capacity: vec![8.0; 2],
//!     edges,
//!     coupling: Coupling::Equal,
//!     send_preemption: None,
//!     completion_preemption: None,
//!     limits: None,
//! };
//! let solution = Solver::<f64>::new(&problem, Settings::default())?.solve();
//! assert_eq!(solution.status, Status::Solved);
//! // The second host's completions bind: 0.5 x0 + x1 = 8, shared 1 to 3.
//! assert!((solution.x[1] - 6.0).abs() < 0.1);
//! # Ok::<(), catchment_control::drum::ProblemError>(())
//! ```
mod answer;
mod bound;
mod check;
mod chunks;
mod direct;
mod exact;
mod fill;
mod filling;
mod flow;
pub mod format;
mod host;
mod joint;
mod layout;
mod model;
mod own;
mod parts;
mod problem;
mod real;
mod recover;
mod rises;
mod root;
mod rounds;
mod rows;
mod solution;
mod solver;
mod start;
mod state;
mod step;
mod sweep;
mod tiles;
mod topk;
mod utility;
mod working;

pub use exact::solve_exactly;
pub use filling::max_min;
pub use host::{
    Answered, Application, Carried, Destination, Header, Host, HostConfig, HostCounts, HostError,
    Input, Message, Numbers, Offer, Output, Round, WireError,
};
pub use model::Objective;
pub use parts::{Isa, limit_isa};
pub use problem::{Coupling, Edges, Preemption, Problem, ProblemError, Sided};
pub use real::Real;
pub use solution::{Fitter, HostPrices, Solution, Status};
pub use solver::{Loss, Settings, Solver};
pub use start::Start;
pub use state::Residuals;
pub use topk::{
    Candidates, Choice, ChoiceError, Fifo, Rotation, Score, Selector, SmallestFirst, TopK, Weight,
};
pub use utility::{completion_marginal, marginal, rate_at, utility};
pub use working::{Behind, Working};

/// Returns the instruction set that rounds use in this process ([`limit_isa`]).
#[must_use]
pub fn isa() -> &'static str {
    match parts::arch() {
        #[cfg(target_arch = "x86_64")]
        pulp::Arch::V4(_) => "avx512",
        #[cfg(target_arch = "x86_64")]
        pulp::Arch::V3(_) => "avx2",
        #[cfg(target_arch = "aarch64")]
        pulp::Arch::Neon(_) => "neon",
        _ => "baseline",
    }
}
