//! The channel over RDMA devices, which `CATCHMENT_IBVERBS_DEVICE` names: one for all ends, or
//! two with a comma between, which the ends take in turn. `cargo xtask lab verbs` runs them; `cargo
//! test` alone does not, because most machines have no such device.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
mod channel;
#[path = "../../transfer/tests/common/load.rs"]
mod load;

use catchment_provider_ibverbs::{IbverbsOptions, IbverbsProvider};
use catchment_verbs::{Context, Provider};
use std::sync::Arc;

/// Devices of two ends that can reach each other: the same two in every process.
fn two_devices() -> [Arc<dyn Context>; 2] {
    [device(0), device(1)]
}

fn device(number: usize) -> Arc<dyn Context> {
    let names = std::env::var("CATCHMENT_IBVERBS_DEVICE");
    let names = names.expect("CATCHMENT_IBVERBS_DEVICE names one RDMA device or two");
    let names: Vec<&str> = names.split(',').collect();
    IbverbsProvider::new(IbverbsOptions::default()).open(names[number % names.len()]).unwrap()
}
