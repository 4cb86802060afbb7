//! Both ends of the admission protocol and all that can go wrong between them, seed after seed.
//!
//! A seed determines a `scenario`: links, sources, transfers and faults. The
//! `world` has the true time; each process has a clock of its own, which drifts. Messages are lost, doubled,
//! late and out of order, sources and controllers die and freeze. The `check` knows the true times: what
//! sources send, as it arrives, never exceeds a link.
mod check;
mod clock;
mod faults;
mod looks;
mod nodes;
mod options;
mod scenario;
#[cfg(test)]
mod tests;
mod wishes;
mod world;

pub use options::{ControlOptions, run};
