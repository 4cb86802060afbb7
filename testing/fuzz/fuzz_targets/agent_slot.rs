//! What the agent of another host writes into the slots of an agent, whatever it is and however much of it is there.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "agent_slot/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
