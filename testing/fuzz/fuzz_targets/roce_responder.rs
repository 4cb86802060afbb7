//! A hostile peer against a queue pair with registered memory and work on both queues.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "roce_responder/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
