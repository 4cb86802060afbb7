//! What the collector counts for one device.

use super::{Counter, InFlight};
use crate::histogram::Histogram;
use crate::preview::Preview;
use crate::snapshot::{DeviceCounters, DeviceSnapshot, LatencySummary};
use crate::sync::{lock, read, write};
use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

/// One delivered frame, as the data path saw it.
#[derive(Debug, Clone, Copy)]
pub struct FrameObservation {
    /// Payload bytes of the whole frame.
    pub bytes: u64,
    /// The checksum of every block was present and right.
    pub verified: bool,
    /// When the source captured it, CLOCK_REALTIME nanoseconds; 0 when the source did not say.
    pub captured_unix_ns: u64,
    /// When it was given to the sinks, CLOCK_REALTIME nanoseconds.
    pub delivered_unix_ns: u64,
}

/// What a source says it did for one device, counted since that source started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceTotals {
    /// Frames handed to the queue pair.
    pub frames_sent: u64,
    /// Frames given up to make room for newer ones.
    pub dropped_oldest: u64,
    /// Frames given up because no block was free.
    pub dropped_newest: u64,
}

/// Written for every frame by the worker that delivers it. A locked addition costs about 10 ns, so
/// there are few: the number of frames follows from the latencies and those without one.
#[derive(Debug, Default)]
struct PerFrame {
    bytes: Counter,
    without_capture_time: Counter,
    verified: Counter,
    last_frame_unix_ns: AtomicU64,
}

/// Written when something is wrong.
#[derive(Debug, Default)]
struct Faults {
    checksum_errors: Counter,
    lost: Counter,
    skipped: Counter,
    duplicates: Counter,
    reordered: Counter,
    sink_errors: Counter,
    capture_ahead: Counter,
}

/// The last report of a source, to turn its running totals into differences.
#[derive(Debug, Default)]
struct Reported {
    instance: u64,
    last: SourceTotals,
    sum: SourceTotals,
}

/// Counters, latency and picture of one device at the collector. Shared by every thread that
/// handles the device; all methods take `&self` and none but the rare ones named so takes a lock.
#[derive(Debug)]
pub struct DeviceMetrics {
    id: u64,
    name: Arc<str>,
    format: RwLock<Arc<str>>,
    connected: AtomicBool,
    per_frame: CachePadded<PerFrame>,
    faults: CachePadded<Faults>,
    blocks: CachePadded<InFlight>,
    latency: Histogram,
    reported: Mutex<Reported>,
    preview: Preview,
}

impl DeviceMetrics {
    pub(super) fn new(id: u64, name: &str, format: &str) -> Self {
        Self {
            id,
            name: name.into(),
            format: RwLock::new(format.into()),
            connected: AtomicBool::new(true),
            per_frame: CachePadded::default(),
            faults: CachePadded::default(),
            blocks: CachePadded::default(),
            latency: Histogram::new(),
            reported: Mutex::default(),
            preview: Preview::new(format),
        }
    }

    /// Returns the name that the source gave the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the picture of the device for the live page.
    pub fn preview(&self) -> &Preview {
        &self.preview
    }

    /// Counts a frame that was given to the sinks. Under 50 ns, no lock, no allocation.
    pub fn frame_received(&self, frame: &FrameObservation) {
        self.per_frame.bytes.add(frame.bytes);
        if frame.verified {
            self.per_frame.verified.add(1);
        }
        let now = frame.delivered_unix_ns;
        self.per_frame.last_frame_unix_ns.store(now, Relaxed);
        match now.checked_sub(frame.captured_unix_ns) {
            _ if frame.captured_unix_ns == 0 => self.per_frame.without_capture_time.add(1),
            Some(ns) => self.latency.record(ns),
            // The clocks disagree: counted, and kept out of the latency.
            None => self.faults.capture_ahead.add(1),
        }
    }

    /// Counts a block whose checksum or commit word was wrong; it was not delivered.
    pub fn checksum_error(&self) {
        self.faults.checksum_errors.add(1);
    }

    /// Counts packet numbers that never arrived and that the source did not say it dropped.
    pub fn frames_lost(&self, frames: u64) {
        self.faults.lost.add(frames);
    }

    /// Counts packet numbers that the source dropped on purpose, as block headers told.
    pub fn frames_skipped(&self, frames: u64) {
        self.faults.skipped.add(frames);
    }

    /// Counts a frame that had been delivered before and was discarded.
    pub fn duplicate_discarded(&self) {
        self.faults.duplicates.add(1);
    }

    /// Counts a frame that arrived before an older one and waited for it.
    pub fn reordered(&self) {
        self.faults.reordered.add(1);
    }

    /// Counts a frame that a sink refused.
    pub fn sink_error(&self) {
        self.faults.sink_errors.add(1);
    }

    /// Blocks of this device that became occupied at the collector.
    pub fn blocks_taken(&self, blocks: u64) {
        self.blocks.begin(blocks);
    }

    /// Blocks of this device that became free again.
    pub fn blocks_released(&self, blocks: u64) {
        self.blocks.end(blocks);
    }

    /// Takes the totals that source process `instance` reported. Reports may repeat and restart
    /// from zero with a new instance; what is shown only grows. Takes a lock: not for the data path.
    pub fn source_reported(&self, instance: u64, totals: SourceTotals) {
        let mut reported = lock(&self.reported);
        if reported.instance != instance {
            reported.instance = instance;
            reported.last = SourceTotals::default();
        }
        let last = std::mem::replace(&mut reported.last, totals);
        let sum = &mut reported.sum;
        // A source may say anything, and as another instance again.
        let add = |sum: &mut u64, now: u64, last| {
            *sum = sum.saturating_add(now.saturating_sub(last));
        };
        add(&mut sum.frames_sent, totals.frames_sent, last.frames_sent);
        add(&mut sum.dropped_oldest, totals.dropped_oldest, last.dropped_oldest);
        add(&mut sum.dropped_newest, totals.dropped_newest, last.dropped_newest);
    }

    /// Says whether a source for the device is there. Shown; changes no counter.
    pub fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Relaxed);
    }

    /// A source came back with another format. Takes a lock: not for the data path.
    pub(super) fn set_format(&self, format: &str) {
        if &**read(&self.format) != format {
            *write(&self.format) = format.into();
            self.preview.set_format(format);
        }
    }

    /// `timed` is the number of frames with a latency. Each sum here only grows, as a counter must.
    fn counters(&self, timed: u64) -> DeviceCounters {
        let (frame, fault) = (&*self.per_frame, &*self.faults);
        let untimed = frame.without_capture_time.get() + fault.capture_ahead.get();
        let reported = lock(&self.reported).sum;
        DeviceCounters {
            frames_received: timed + untimed,
            bytes_received: frame.bytes.get(),
            frames_verified: frame.verified.get(),
            checksum_errors: fault.checksum_errors.get(),
            frames_lost: fault.lost.get(),
            frames_skipped: fault.skipped.get(),
            frames_duplicate: fault.duplicates.get(),
            frames_reordered: fault.reordered.get(),
            sink_errors: fault.sink_errors.get(),
            frames_capture_ahead: fault.capture_ahead.get(),
            source_frames_sent: reported.frames_sent,
            source_dropped_oldest: reported.dropped_oldest,
            source_dropped_newest: reported.dropped_newest,
        }
    }

    /// All numbers of the device at this moment.
    pub fn snapshot(&self) -> DeviceSnapshot {
        let latency = self.latency.snapshot();
        DeviceSnapshot {
            id: self.id,
            name: self.name.to_string(),
            format: read(&self.format).to_string(),
            connected: self.connected.load(Relaxed),
            has_preview: self.preview.is_possible(),
            counters: self.counters(latency.count()),
            blocks_in_flight: self.blocks.get(),
            last_frame_unix_ms: self.per_frame.last_frame_unix_ns.load(Relaxed) / 1_000_000,
            latency: LatencySummary::of(&latency),
            recent: None,
            histogram: latency,
        }
    }
}
