//! The mechanism over RoCE on loopback.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
mod common;
mod status_byte;

use catchment_provider_roce::{RoceOptions, RoceProvider};
use catchment_verbs::{Context, Provider};
use std::sync::Arc;

/// A device of its own for every end.
fn context() -> Arc<dyn Context> {
    RoceProvider::new(RoceOptions { port: 0, ..RoceOptions::default() }).open("127.0.0.1").unwrap()
}

/// Devices of two ends that can reach each other.
fn two_devices() -> [Arc<dyn Context>; 2] {
    [context(), context()]
}
