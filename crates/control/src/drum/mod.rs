//! DRUM: rates of applications that share hosts, fair and optimal.
mod check;
pub mod format;
mod problem;

pub use problem::{Coupling, Edges, Preemption, Problem, ProblemError, Sided};
