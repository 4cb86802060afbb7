//! Sources and collectors together.
//!
//! `hostile`, `many_sources` and `no_doorbell` are programs of their own: they count what their
//! process has.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod churn;
mod endings;
mod examples;
mod frames;
mod hostile_collector;
mod stream;

use catchment::Frame;
use catchment::sink::{DeviceSink, Rejected, Sink, SinkError};
use std::time::{Duration, Instant};

/// How long a test waits for what should happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the counters or lists that `done` checks are as they should be; they notify nobody.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        // Counters tell nobody that they changed: look again.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A sink that takes nothing, for this reason.
#[derive(Clone, Copy)]
struct Full(fn() -> SinkError);

impl Sink for Full {
    fn open(&self, _: &str) -> Result<Box<dyn DeviceSink>, SinkError> {
        Ok(Box::new(*self))
    }
}

impl DeviceSink for Full {
    fn next_packet(&self) -> Option<u64> {
        None
    }

    fn accept(&mut self, frame: Frame) -> Result<(), Rejected> {
        Err(Rejected { frame, error: (self.0)() })
    }
}
