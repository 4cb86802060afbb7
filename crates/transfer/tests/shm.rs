//! The mechanism over shared memory.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]
mod common;
#[path = "devices/shm.rs"]
mod devices;
mod status_byte;

use devices::{context, two_devices};
