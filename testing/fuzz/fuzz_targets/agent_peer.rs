//! Frames of the agent of another host, whatever they are.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "agent_peer/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
