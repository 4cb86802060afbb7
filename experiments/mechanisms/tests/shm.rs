//! Every mechanism over shared memory; the paper's format and the byte streams, too.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#[path = "../../../crates/transfer/tests/common/mod.rs"]
mod common;
mod mechanism;
mod paper;
mod tcp;

use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Provider};
use std::sync::Arc;

/// A device of its own for every end.
fn context() -> Arc<dyn Context> {
    ShmProvider::new().open("shm0").unwrap()
}

/// Devices of two ends that can reach each other.
fn two_devices() -> [Arc<dyn Context>; 2] {
    [context(), context()]
}
