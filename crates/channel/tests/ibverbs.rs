//! The channel over RDMA devices. `cargo xtask lab verbs` runs them; `cargo test` alone does not, because most
//! machines have no such device.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]
mod channel;
#[path = "../../transfer/tests/devices/ibverbs.rs"]
mod devices;

use devices::two_devices;
