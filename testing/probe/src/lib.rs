//! What a program does with a verbs device, seen from outside.
//!
//! Tests and benches put a probe between the code under test and its device. A probe implements the
//! traits of `catchment-verbs`, hands every call on unchanged, and counts it:
//!
//! - [`trace::Trace::of`] wraps a queue pair and counts the requests posted, by kind and bytes.
//! - [`census::Census::of`] wraps a device and counts the objects that are alive; it can also make
//!   the n-th creation fail.
//! - [`patience::Patience`] waits for what the other end does; [`load`] has the bytes that tests move,
//!   and [`random::Random`] is where all chance of tests and simulations comes from.
//! - [`child::Child`] is the test binary started again, as a second process to talk with or to kill.
//!
//! A probe changes no result and keeps nothing alive. It takes a lock per call, so a program under a
//! probe is not to be timed.
#![allow(missing_docs, reason = "only our own tests and measurements use it")]
#![forbid(unsafe_code)]

pub mod census;
pub mod child;
mod forward;
pub mod load;
pub mod patience;
pub mod random;
pub mod trace;
