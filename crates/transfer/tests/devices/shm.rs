//! Devices of shared memory.
use catchment_provider_shm::ShmProvider;
use catchment_verbs::{Context, Provider};
use std::sync::Arc;

/// A device of its own for every end.
pub(crate) fn context() -> Arc<dyn Context> {
    ShmProvider::new().open("shm0").unwrap()
}

/// Devices of two ends that can reach each other.
pub(crate) fn two_devices() -> [Arc<dyn Context>; 2] {
    [context(), context()]
}
