//! A network in virtual time, from a seed.
//!
//! The state machines under test are the ones that ship; only clock, wire and chance are replaced.
//! A `Simulation` has nodes and one-way `Link`s between them. A link has a rate, a delay, a
//! drop-tail queue and an MTU, and can lose, delay, duplicate and corrupt frames. Frames are whole
//! IP packets, so a run can be saved as a capture (`Observer`) and opened in any analyser.
//!
//! A run is deterministic on every machine: events advance the time, events at the same time happen
//! in the order in which they were scheduled, all chance comes from [`Random`], and nothing here
//! iterates over a hash table.
//!
//! [`verbs`] applies the same rules to code built on verbs: a provider whose operations take
//! configured times.
#![allow(missing_docs, reason = "only our own tests and measurements use it")]
#![forbid(unsafe_code)]

pub mod admission;
#[cfg(test)]
mod congestion;
pub mod control;
pub mod drum;
mod frame;
mod link;
pub mod loss;
mod observe;
mod parallel;
pub mod roce;
mod seeds;
mod simulation;
pub mod soak;
mod switch;
pub mod verbs;

pub use catchment_probe::random::{Chance, Random};

pub(crate) use frame::{CONGESTION_EXPERIENCED, ECN_CAPABLE, Frame};
pub(crate) use link::{Arrival, BurstLength, Corruption, Delay, Fate, Link, LinkConfig, Loss};
pub(crate) use observe::{Event, EventKind, Observer};
pub(crate) use simulation::{Context, LinkId, Node, NodeId, Simulation, Stop};
pub(crate) use switch::Switch;
