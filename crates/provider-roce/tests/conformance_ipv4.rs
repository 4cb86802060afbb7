//! The conformance suite over loopback, IPv4.
mod common;

catchment_conformance::conformance!(common::bench("127.0.0.1", common::any_port()));
