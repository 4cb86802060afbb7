//! The channel over shared memory.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]
mod channel;
#[path = "../../transfer/tests/devices/shm.rs"]
mod devices;

use devices::two_devices;
