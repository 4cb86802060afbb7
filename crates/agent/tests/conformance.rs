//! The conformance suite through an agent over shared memory.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

catchment_conformance::conformance!(suite::bench("shm", r#""shm""#));
