//! Every interleaving of how threads sleep and are woken, under the C11 memory model.
//!
//! Run it with `RUSTFLAGS="--cfg loom" cargo test -p catchment-verbs --release --test loom`.
//!
//! The code is the shipped one. Compiled without its fences it must fail: a checker that finds
//! nothing proves nothing.
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]

mod arm;
mod bias;
mod event_count;
mod fenced;
mod futex;
mod unfenced;
