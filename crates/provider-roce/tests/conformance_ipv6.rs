//! The conformance suite over loopback, IPv6.
mod common;

catchment_conformance::conformance!(common::bench("::1", common::any_port()));
