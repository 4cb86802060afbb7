//! All faults at once, seed after seed.
//!
//! A seed determines a `scenario`: links, hosts, queue pairs, and a `plan` of requests for each.
//! The workers post the plans, `trial` advances time, and `check` is the oracle.
mod check;
mod forge;
mod options;
mod plan;
mod scenario;
mod setup;
mod summary;
mod trial;
mod worker;

pub use options::{SoakOptions, run};
