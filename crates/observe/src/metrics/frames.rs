//! Counters of the data path for one device of a collector: additions only, no lock, no allocation.
use super::{Counter, InFlight};
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::snapshot::DeviceCounters;
use crossbeam_utils::CachePadded;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One delivered frame, as the data path saw it.
#[derive(Debug, Clone, Copy)]
pub struct FrameObservation {
    /// Payload bytes of the whole frame.
    pub bytes: u64,
    /// Every block had a correct checksum.
    pub verified: bool,
    /// When the source captured it, CLOCK_REALTIME nanoseconds; 0 if unknown.
    pub captured_unix_ns: u64,
    /// When it was delivered to the sinks, CLOCK_REALTIME nanoseconds.
    pub delivered_unix_ns: u64,
}

/// Why a frame could not be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LossCause {
    /// It never came, and its source did not drop it on purpose.
    Missing,
    /// Its bytes are not those that were sent, and nobody has those any more.
    Damaged,
    /// The sink panicked over it.
    Sink,
}

/// Written for every frame by the worker that delivers it. A locked addition costs about 10 ns, so
/// there are few: the number of frames follows from the latencies and those without one.
#[derive(Debug, Default)]
struct PerFrame {
    bytes: Counter,
    without_capture_time: Counter,
    verified: Counter,
    last_frame_unix_ns: AtomicU64,
    numbered: AtomicU64,
}

/// Written when something is wrong.
#[derive(Debug, Default)]
struct Faults {
    checksum_errors: Counter,
    lost_missing: Counter,
    lost_damaged: Counter,
    lost_sink: Counter,
    skipped: Counter,
    duplicates: Counter,
    reordered: Counter,
    sink_errors: Counter,
    capture_ahead: Counter,
}

/// Frames and blocks of one device, counted by every thread that handles them.
#[derive(Debug, Default)]
pub struct FrameCounters {
    per_frame: CachePadded<PerFrame>,
    faults: CachePadded<Faults>,
    blocks: CachePadded<InFlight>,
    latency: Histogram,
}

impl FrameCounters {
    /// Counts a frame that was delivered to the sinks. Under 50 ns, no lock, no allocation.
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

    /// Notes how many packet numbers of the device were passed, whatever became of their frames.
    pub fn frames_numbered(&self, numbers: u64) {
        self.per_frame.numbered.store(numbers, Relaxed);
    }

    /// Counts frames that could not be delivered.
    pub fn frames_lost(&self, cause: LossCause, frames: u64) {
        let counter = match cause {
            LossCause::Missing => &self.faults.lost_missing,
            LossCause::Damaged => &self.faults.lost_damaged,
            LossCause::Sink => &self.faults.lost_sink,
        };
        counter.add(frames);
    }

    /// Counts packet numbers that the source dropped on purpose, according to block headers.
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

    /// Counts blocks of this device that became occupied at the collector.
    pub fn blocks_taken(&self, blocks: u64) {
        self.blocks.begin(blocks);
    }

    /// Counts blocks of this device that became free again.
    pub fn blocks_released(&self, blocks: u64) {
        self.blocks.end(blocks);
    }

    pub(super) fn latency(&self) -> HistogramSnapshot {
        self.latency.snapshot()
    }

    pub(super) fn blocks_in_flight(&self) -> u64 {
        self.blocks.get()
    }

    pub(super) fn last_frame_unix_ms(&self) -> u64 {
        self.per_frame.last_frame_unix_ns.load(Relaxed) / 1_000_000
    }

    /// Returns the counters, without what the source reports. `timed` is the number of frames with a
    /// latency. Each sum here only grows, as a counter must.
    pub(super) fn counters(&self, timed: u64) -> DeviceCounters {
        let (frame, fault) = (&*self.per_frame, &*self.faults);
        let untimed = frame.without_capture_time.get() + fault.capture_ahead.get();
        let lost = [&fault.lost_missing, &fault.lost_damaged, &fault.lost_sink].map(Counter::get);
        let [lost_missing, lost_damaged, lost_sink] = lost;
        DeviceCounters {
            frames_numbered: frame.numbered.load(Relaxed),
            frames_received: timed + untimed,
            bytes_received: frame.bytes.get(),
            frames_verified: frame.verified.get(),
            checksum_errors: fault.checksum_errors.get(),
            frames_lost: lost.into_iter().fold(0, u64::saturating_add),
            lost_missing,
            lost_damaged,
            lost_sink,
            frames_skipped: fault.skipped.get(),
            frames_duplicate: fault.duplicates.get(),
            frames_reordered: fault.reordered.get(),
            sink_errors: fault.sink_errors.get(),
            frames_capture_ahead: fault.capture_ahead.get(),
            ..DeviceCounters::default()
        }
    }
}
