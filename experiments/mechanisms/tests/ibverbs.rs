//! The mechanisms over RDMA devices. `cargo xtask lab verbs` runs them; `cargo test` alone does not, because most
//! machines have no such device.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "../../../crates/transfer/tests/devices/ibverbs.rs"]
mod devices;
mod mechanism;

use devices::{context, two_devices};
