//! The command as users run it: real processes, their outputs and exit codes.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod bench;
mod clips;
mod common;
mod damage;
mod demo;
mod docs;
mod errors;
mod examine;
mod one_binary;
mod page;
mod quiet;
mod roce;
mod sessions;
mod tls;
