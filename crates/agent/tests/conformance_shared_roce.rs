//! The conformance suite through two agents over RoCEv2 on loopback whose connections share queue pairs.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

catchment_conformance::conformance!(suite::shared_bench("roce", suite::ROCE));
