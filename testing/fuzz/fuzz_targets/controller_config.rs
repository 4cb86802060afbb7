//! The file that configures a transmission controller: any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "controller_config/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
