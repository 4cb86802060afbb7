//! The duplex channel in virtual time.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test, which waits for its other thread in real time"
)]
#[path = "../../../crates/channel/tests/channel/mod.rs"]
mod channel;

use catchment_sim::verbs::{Fabric, OpTime, Pace, Times};
use catchment_verbs::{Context, Provider};
use std::sync::Arc;
use std::time::Duration;

/// Two devices of a fabric of their own.
fn two_devices() -> [Arc<dyn Context>; 2] {
    let times = Times {
        write: OpTime::occupying(Duration::from_micros(3)).with_ps_per_byte(140),
        write_inline: OpTime::one_way(Duration::from_micros(2)),
        read: OpTime::round_trip(Duration::from_micros(5)),
        send: OpTime::one_way(Duration::from_micros(4)),
        linked: Duration::from_nanos(100),
    };
    let provider = Fabric::new(times, Pace::WhenPolled).provider();
    [(); 2].map(|()| provider.open("sim0").unwrap())
}
