//! Everything going wrong at once, seed after seed.
//!
//! A seed makes a `scenario`: links, hosts, queue pairs, and for each a `plan` of requests. The
//! workers post it, `trial` lets time pass, and `check` is the oracle.
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
