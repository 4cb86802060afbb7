//! The channel over shared memory.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
mod channel;
#[path = "../../transfer/tests/common/load.rs"]
mod load;

use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Provider};
use std::sync::Arc;

fn context() -> Arc<dyn Context> {
    ShmProvider::new().open("shm0").unwrap()
}

/// Devices of two ends that can reach each other.
fn two_devices() -> [Arc<dyn Context>; 2] {
    [context(), context()]
}
