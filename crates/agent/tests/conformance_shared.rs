//! The conformance suite through two agents over shared memory whose connections share queue pairs.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

catchment_conformance::conformance!(suite::shared_bench("shm", [r#""shm""#, r#""shm""#]));
