//! Devices of RoCE on loopback.
use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_verbs::{Context, Provider};
use std::sync::Arc;

/// A device of its own for every end.
pub(crate) fn context() -> Arc<dyn Context> {
    RoceProvider::new(RoceOptions { port: 0, ..RoceOptions::default() }).open("127.0.0.1").unwrap()
}

/// Devices of two ends that can reach each other.
pub(crate) fn two_devices() -> [Arc<dyn Context>; 2] {
    [context(), context()]
}
