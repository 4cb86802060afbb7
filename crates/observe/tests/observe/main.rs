//! Metrics, snapshots and the live page, as a program that uses the crate sees them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod dashboard;
mod idle;
mod metrics;
