//! Providers for tests.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]
use catchment_conformance::Bench;
use catchment_provider_roce::{RoceContext, RoceOptions, RoceProvider};
use std::sync::Arc;

/// Every open gets a port of its own, so that tests in parallel, and a case that opens one address
/// twice, do not collide.
pub fn any_port() -> RoceOptions {
    RoceOptions { port: 0, ..RoceOptions::default() }
}

/// Two devices of one process.
pub fn open_two(addresses: [&str; 2], options: RoceOptions) -> [Arc<RoceContext>; 2] {
    let provider = RoceProvider::new(options);
    addresses.map(|address| provider.open_device(address).expect("the device opens"))
}

/// The conformance suite on this address.
pub fn bench(device: &str, options: RoceOptions) -> Bench {
    Bench::new(Arc::new(RoceProvider::new(options)), device)
}
