//! The conformance suite through two agents over RoCEv2 on loopback whose connections share queue pairs.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

catchment_conformance::conformance!(suite::shared_bench(
    "roce",
    [r#"{"roce": "127.0.0.1"}"#, r#"{"roce": "127.0.0.2"}"#]
));
