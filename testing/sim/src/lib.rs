//! A network in virtual time, from a seed.
//!
//! The state machines under test are the ones that ship; only clock, wire and chance are replaced.
//! A `Simulation` has nodes and one-way `Link`s between them. A link has a rate, a delay, a
//! drop-tail queue and an MTU, and it can lose, hold back, double and corrupt frames. Frames are
//! whole IP packets, so that a run can be written as a capture (`Observer`) and opened in any
//! analyser.
//!
//! A run is the same run on every machine: time is a number that events advance, events of one
//! moment happen in the order in which they were made, all chance comes from [`Random`], and
//! nothing here iterates over a hash table.
//!
//! [`verbs`] is a second world with the same rules: a provider of verbs whose operations take as long
//! as they are told to, for what is built on verbs.
#![allow(missing_docs, reason = "only our own tests and measurements use it")]
#![forbid(unsafe_code)]

#[cfg(test)]
mod congestion;
mod frame;
mod link;
pub mod loss;
mod observe;
mod parallel;
pub mod roce;
mod simulation;
pub mod soak;
pub mod verbs;

pub use catchment_probe::random::{Chance, Random};

pub(crate) use frame::{CONGESTION_EXPERIENCED, ECN_CAPABLE, Frame};
pub(crate) use link::{Arrival, BurstLength, Corruption, Delay, Fate, Link, LinkConfig, Loss};
pub(crate) use observe::{Event, EventKind, Observer};
pub(crate) use simulation::{Context, LinkId, Node, NodeId, Simulation, Stop};
