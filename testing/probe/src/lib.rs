//! Observes from outside what a program does with a verbs device.
//!
//! Tests and benches put a probe between the code under test and its device. A probe implements the
//! traits of `catchment-verbs`, forwards every call unchanged, and counts it:
//!
//! - [`trace::Trace::of`] wraps a queue pair and counts the requests posted, by kind and bytes.
//! - [`census::Census::of`] wraps a device and counts the live objects; it can also make the n-th
//!   creation fail.
//! - [`patience::Patience`] waits for the other end; [`load`] has the bytes that tests move, and
//!   [`random::Random`] is the source of randomness of all tests and simulations.
//! - [`corpus::replay`] goes over the inputs of a fuzz target.
//! - [`child::Child`] is the test binary started again, as a second process to talk to or to kill.
//!
//! A probe changes no result and keeps nothing alive. It takes a lock per call, so do not time a program
//! under a probe.
#![allow(missing_docs, reason = "only our own tests and measurements use it")]
#![forbid(unsafe_code)]

pub mod census;
pub mod child;
pub mod corpus;
mod forward;
pub mod load;
pub mod patience;
pub mod random;
pub mod trace;
