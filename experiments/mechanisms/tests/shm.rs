//! Every mechanism over shared memory; the paper's format and the byte streams, too.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "../../../crates/transfer/tests/common/mod.rs"]
mod common;
#[path = "../../../crates/transfer/tests/devices/shm.rs"]
mod devices;
mod mechanism;
mod paper;
mod tcp;

use devices::{context, two_devices};
