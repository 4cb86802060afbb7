//! The channel over RoCE on loopback.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]
mod channel;
#[path = "../../transfer/tests/devices/roce.rs"]
mod devices;

use devices::two_devices;
