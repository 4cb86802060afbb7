//! A hostile application: any bytes in the slots of its request pool. A hostile agent: any completions.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "agent_entry/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
