//! Every mechanism over RoCE on loopback.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "../../../crates/transfer/tests/devices/roce.rs"]
mod devices;
mod mechanism;

use devices::{context, two_devices};
