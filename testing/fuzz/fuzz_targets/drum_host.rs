//! Messages of neighbours, whatever they are, into one host of DRUM.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "drum_host/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
