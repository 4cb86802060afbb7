//! What the engine and a device do beyond the conformance suite, as one program.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod attacker;
#[path = "../common/mod.rs"]
mod common;
mod datagrams;
mod device;
mod services;
mod silence;
