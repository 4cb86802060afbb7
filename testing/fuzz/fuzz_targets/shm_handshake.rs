//! A hostile process at the socket of a shared memory context that has a session with another.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "shm_handshake/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
