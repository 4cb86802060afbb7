//! The conformance suite with go-back-N, the smallest packets, and no doorbell: as RNICs are.
mod common;

catchment_conformance::conformance!(common::bench(
    "127.0.0.1",
    catchment_provider_roce::RoceOptions {
        selective_repeat: false,
        doorbell: false,
        path_mtu: Some(catchment_roce::wire::PathMtu::Mtu256),
        ..common::any_port()
    }
));
