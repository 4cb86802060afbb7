//! What a store answers that keeps who leads among controllers: any bytes, as an answer and as what a key of it holds.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "store_answer/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));
