//! A collector that is attacked while a good source streams. Every case asserts that the attacker
//! is refused with a reason or does no harm, that the good stream arrives whole, and that nothing
//! of the attacker stays.
//!
//! A program of its own: it counts the descriptors and mappings of its process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad;
mod blocks;
mod endings;
mod kept;
mod messages;
mod replay;
mod shuffled;
mod world;
