//! The conformance suite through an agent over the RDMA device that `CATCHMENT_IBVERBS_DEVICE` names. `cargo xtask lab verbs` runs
//! it; `cargo test` alone does not, because most machines have no such device.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

catchment_conformance::conformance!(suite::of_rxe(suite::bench("ibverbs", &suite::rxe())));
