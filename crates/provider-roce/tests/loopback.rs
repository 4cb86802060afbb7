//! The conformance suite over loopback, IPv4 and IPv6, with the engine's thread and inline.
use catchment_conformance::Bench;
use catchment_provider_roce::{RoceOptions, RoceProvider};
use std::sync::Arc;

/// Every open gets a port of its own, so that a case can open the same address twice.
fn bench(device: &str, inline_polling: bool) -> Bench {
    let options = RoceOptions {
        port: 0,
        inline_polling,
        ..RoceOptions::default()
    };
    Bench::new(Arc::new(RoceProvider::new(options)), device)
}

mod ipv4 {
    catchment_conformance::conformance!(super::bench("127.0.0.1", false));
}
