//! Sources and collectors together.
//!
//! `hostile`, `many_sources` and `no_doorbell` are programs of their own: they count what their
//! process has.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod churn;
mod damage;
mod dropping;
mod endings;
mod examples;
mod frames;
mod granting;
mod hostile_collector;
mod pairs;
mod stand_in;
mod stream;

use catchment::Frame;
use catchment::collector::{Collector, CollectorBuilder};
use catchment::sink::{DeviceSink, Rejected, Sink, SinkError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// How long a test waits for what should happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A frame that arrived.
struct Arrived {
    device: String,
    packet_number: u64,
    bytes: Vec<u8>,
    captured: SystemTime,
}

type Log = Arc<Mutex<Vec<Arrived>>>;

fn logging(log: &Log) -> impl Fn(Frame) + Send + Sync + 'static {
    let log = log.clone();
    move |frame: Frame| {
        log.lock().unwrap().push(Arrived {
            device: frame.device().to_owned(),
            packet_number: frame.packet_number(),
            bytes: frame.to_vec(),
            captured: frame.capture_time(),
        });
    }
}

fn collector() -> CollectorBuilder {
    Collector::builder("127.0.0.1:0").workers(2)
}

/// A collector that logs what arrives.
fn logged() -> (Log, Collector) {
    let log = Log::default();
    let collector = collector().on_frame(logging(&log)).start().unwrap();
    (log, collector)
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
