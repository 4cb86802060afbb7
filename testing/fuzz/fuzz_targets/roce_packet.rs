//! Any IP packet through all decoders, and back.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "roce_packet/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
