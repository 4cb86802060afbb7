//! The conformance suite through an agent over RoCEv2 on loopback.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

catchment_conformance::conformance!(suite::bench("roce", r#"{"roce": "127.0.0.1"}"#));
