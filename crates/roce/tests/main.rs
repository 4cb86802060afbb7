//! The tests of the crate, from outside, as one program.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;
mod corpus;
mod errors;
mod forged;
mod golden;
mod hostile;
mod operations;
mod pair;
mod responder;
mod round_trip;
mod states;
mod unreliable;
mod wireshark;
