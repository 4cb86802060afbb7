//! Providers for tests.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]
use catchment_conformance::Bench;
use catchment_provider_roce::{RoceOptions, RoceProvider};
use std::sync::Arc;

/// Every open gets a port of its own, so that tests in parallel, and a case that opens one address
/// twice, do not collide.
pub fn any_port() -> RoceOptions {
    RoceOptions { port: 0, ..RoceOptions::default() }
}

/// The conformance suite on this address.
pub fn bench(device: &str, options: RoceOptions) -> Bench {
    Bench::new(Arc::new(RoceProvider::new(options)), device)
}
