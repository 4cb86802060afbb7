//! What the agent of another host says over a shared queue pair, whatever it is.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "agent_inband/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
