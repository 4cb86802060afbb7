//! Metrics, snapshots and the live page, as a program that uses the crate sees them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod dashboard;
mod idle;
mod metrics;
mod status_page;

use catchment_observe::FrameObservation;

const SECOND: u64 = 1_000_000_000;

fn frame(bytes: u64, latency_ns: u64) -> FrameObservation {
    FrameObservation {
        bytes,
        verified: true,
        captured_unix_ns: SECOND,
        delivered_unix_ns: SECOND + latency_ns,
    }
}
