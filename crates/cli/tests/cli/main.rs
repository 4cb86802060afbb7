//! The command as users run it: real processes, their outputs and exit codes.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod agent;
mod bench;
mod clips;
mod common;
mod control;
mod damage;
mod demo;
mod deploy;
mod disk;
mod docs;
mod errors;
mod examine;
mod kv;
mod names;
mod one_binary;
mod page;
mod pauses;
mod quiet;
mod raw;
mod refusals;
mod roce;
mod sessions;
mod standby;
mod tls;
mod tunnel;
