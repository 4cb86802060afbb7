//! What the processes of a cell and who started them tell each other.
//!
//! Each prints a line when it is ready, reads `begin` and the time on the monotonic clock, and later `report`, which it
//! answers with a line of JSON. The collector answers `count` too: frames that are there.
use crate::sys;
use anyhow::{Context as _, Result, bail};
use catchment_sim::admission::{Event, Trace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The beginning of each frame: device, event of the device, frame of the event.
pub(super) const STAMP_BYTES: usize = 24;
/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Job {
    Collector { listen: String, tcp: bool, frame_bytes: usize, port: Option<u16> },
    Source(SourceJob),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SourceJob {
    pub(super) device: u32,
    pub(super) trace: PathBuf,
    pub(super) frame_bytes: usize,
    pub(super) collector: String,
    pub(super) controller: Option<String>,
    /// A grant covers an event, not a frame.
    pub(super) by_event: bool,
    /// Frames that it may have on their way or waiting for a grant.
    pub(super) blocks: u32,
    pub(super) rate_max_bps: u64,
    pub(super) traffic_class: u8,
    /// Where its packets enter the link, if that is a relay.
    pub(super) via: Option<SocketAddr>,
    /// TCP with this congestion control, in place of Catchment.
    pub(super) congestion: Option<String>,
}

/// A frame that is there.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Came {
    pub(super) device: u64,
    pub(super) event: u64,
    pub(super) frame: u64,
    pub(super) at_ns: u64,
}

impl Came {
    pub(super) fn now(stamp: [u8; STAMP_BYTES]) -> Self {
        let word = |at: usize| {
            let bytes = stamp.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Self { device: word(0), event: word(8), frame: word(16), at_ns: sys::monotonic_ns() }
    }
}

pub(super) fn stamp(device: u32, event: usize, frame: u64) -> [u8; STAMP_BYTES] {
    let mut bytes = [0; STAMP_BYTES];
    let words = [u64::from(device), event as u64, frame];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// What a process says at its end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) cpu_ns: u64,
    pub(super) bytes: u64,
    /// Of a collector.
    pub(super) came: Vec<Came>,
    pub(super) frames_lost: Option<u64>,
    pub(super) sequence_naks_sent: Option<u64>,
    /// Of a source: events of which it was told that they miss their deadlines.
    pub(super) told: BTreeSet<usize>,
    /// When it began to send each of its events, on the monotonic clock; nothing where it asks a controller, which begins
    /// later.
    pub(super) begun_ns: Vec<u64>,
    pub(super) packets_sent: u64,
    pub(super) retransmitted: u64,
    pub(super) timeouts: u64,
    pub(super) reconnects: u64,
}

impl Report {
    /// Returns what a time is for each gigabyte that came: nanoseconds for a byte.
    pub(super) fn seconds_per_gb(&self, ns: u64) -> Option<f64> {
        Some(ns as f64 / self.bytes as f64).filter(|cpu| cpu.is_finite())
    }
}

/// Frames that are there, in the order in which they came.
pub(super) type Log = Arc<Mutex<Vec<Came>>>;

pub(super) fn taken(log: &Log) -> Vec<Came> {
    log.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// When events began to be sent, in their order.
pub(super) type Begun = Arc<Mutex<Vec<u64>>>;

/// Notes that the next event begins to be sent.
pub(super) fn note(begun: &Begun) {
    begun.lock().unwrap_or_else(PoisonError::into_inner).push(sys::monotonic_ns());
}

/// Returns the beginnings.
pub(super) fn noted(begun: &Begun) -> Vec<u64> {
    begun.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Answers until the input ends. `report` has what only the collector knows.
pub(super) fn obey(log: &Log, report: impl Fn() -> Report) -> Result<()> {
    let mut cpu_before_ns = 0;
    for line in std::io::stdin().lock().lines() {
        match line?.split(' ').next() {
            Some("begin") => cpu_before_ns = sys::process_cpu_ns(),
            Some("count") => say(&taken(log).len().to_string())?,
            Some("report") => {
                let cpu_ns = sys::process_cpu_ns() - cpu_before_ns;
                say_json(&Report { cpu_ns, came: taken(log), ..report() })?;
            }
            other => bail!("told {other:?}"),
        }
    }
    Ok(())
}

pub(super) fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

pub(super) fn say_json<T: Serialize>(value: &T) -> Result<()> {
    say(&serde_json::to_string(value)?)
}

/// The events of a source, in the order of their times.
pub(super) fn events(job: &SourceJob) -> Result<Vec<Event>> {
    let trace = Trace::read(&std::fs::read_to_string(&job.trace)?).map_err(anyhow::Error::msg)?;
    let own = trace.events().iter().filter(|event| event.device == job.device);
    Ok(own.copied().collect())
}

/// Reads when to begin.
pub(super) fn begin() -> Result<u64> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let at = line.trim().strip_prefix("begin ").and_then(|at| at.parse().ok());
    at.context("no beginning")
}

/// Waits for the order to report.
pub(super) fn wait_for_end() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    match line.trim() {
        "report" => Ok(()),
        other => bail!("told {other:?}"),
    }
}

pub(super) fn sleep_until(due_ns: u64) {
    let left = due_ns.saturating_sub(sys::monotonic_ns());
    if left > 0 {
        // The time of an event.
        std::thread::sleep(Duration::from_nanos(left));
    }
}
