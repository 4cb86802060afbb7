//! The duplex channel in virtual time.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test, which waits for its other thread in real time"
)]
#[path = "../../../crates/channel/tests/channel/mod.rs"]
mod channel;

use catchment_sim::verbs::{Fabric, Pace, Times};
use catchment_verbs::{Context, Provider};
use std::sync::Arc;

/// Returns two devices of a new fabric.
fn two_devices() -> [Arc<dyn Context>; 2] {
    let provider = Fabric::new(Times::usual(), Pace::WhenPolled).provider();
    [(); 2].map(|()| provider.open("sim0").unwrap())
}
