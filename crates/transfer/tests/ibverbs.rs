//! The mechanisms over RDMA devices. `cargo xtask lab verbs` runs them; `cargo test` alone does not, because most
//! machines have no such device.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]
mod common;
#[path = "devices/ibverbs.rs"]
mod devices;
mod status_byte;

use devices::{context, two_devices};
