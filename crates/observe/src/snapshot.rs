//! All numbers at one moment, as plain data.
//!
//! One definition serves `/api/status`, the page, the terminal, the final report and Prometheus.
//! Names end in their unit. Counters only grow while the process lives.
use super::granting::GrantSnapshot;
use super::histogram::HistogramSnapshot;
use super::ledger::Ledger;
use super::network::{RoceSnapshot, SessionSnapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Everything a collector knows about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CollectorSnapshot {
    /// Version of the software.
    pub version: String,
    /// When this was taken, milliseconds since 1970.
    pub unix_ms: u64,
    /// Seconds since the collector started.
    pub uptime_s: f64,
    /// Sessions that are open now.
    pub sessions_open: u64,
    /// Sessions opened since the start.
    pub sessions_total: u64,
    /// Sources refused, by reason code.
    pub sessions_refused: BTreeMap<String, u64>,
    /// Paths in use, and why each was chosen.
    pub paths: Vec<PathSnapshot>,
    /// Sessions that are open now, the oldest 256.
    pub sessions: Vec<SessionSnapshot>,
    /// The RoCEv2 devices that this process has open.
    pub roce: Vec<RoceSnapshot>,
    /// Frames that reached the collector and no sink before it ended: the sink refused them, or they were asked
    /// for again and did not come. Sources that live send them again.
    pub frames_given_up: u64,
    /// Counters of all devices together, those removed included.
    pub totals: DeviceCounters,
    /// Latency of all frames of all devices since the start.
    #[serde(flatten)]
    pub latency: LatencySummary,
    /// Rates and latency of the last seconds; `None` in the first sample.
    pub recent: Option<Recent>,
    /// Processor and memory use of this process.
    pub cpu: Option<CpuSnapshot>,
    /// The devices, ordered by name.
    pub devices: Vec<DeviceSnapshot>,
    /// All latencies, for exact merging; not part of the JSON.
    #[serde(skip)]
    pub histogram: HistogramSnapshot,
}

/// One path, with the reason for its choice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathSnapshot {
    /// The collector's provider, such as `shm`.
    pub provider: String,
    /// The source's provider.
    pub source_provider: String,
    /// Why these providers.
    pub reason: String,
    /// Sessions that use it now.
    pub sessions_open: u64,
    /// Sessions that used it since the start.
    pub sessions_total: u64,
}

/// Defines counters, and their sum over devices.
macro_rules! counters {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: u64,)* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl AddAssign<&Self> for $name {
            fn add_assign(&mut self, other: &Self) {
                // Sources choose some of these numbers: their sum may be beyond 64 bits.
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
}

counters! {
    /// Counters of one device, or of all together.
    pub struct DeviceCounters {
        /// Packet numbers that went by, whatever became of their frames.
        pub frames_numbered: u64,
        /// Frames delivered to the sinks.
        pub frames_received: u64,
        /// Their payload bytes.
        pub bytes_received: u64,
        /// Frames with a correct checksum.
        pub frames_verified: u64,
        /// Blocks refused for a wrong checksum or commit word.
        pub checksum_errors: u64,
        /// Frames that could not be delivered: the sum of the next three.
        pub frames_lost: u64,
        /// Frames that never arrived and that the source did not drop on purpose.
        pub lost_missing: u64,
        /// Frames that were damaged and could not be had again.
        pub lost_damaged: u64,
        /// Frames over which the sink panicked.
        pub lost_sink: u64,
        /// Frames that the source dropped on purpose, inferred from the packet numbers.
        pub frames_skipped: u64,
        /// Frames that arrived twice; the second was discarded.
        pub frames_duplicate: u64,
        /// Frames that arrived before an older one and waited for it.
        pub frames_reordered: u64,
        /// Frames that a sink refused.
        pub sink_errors: u64,
        /// Frames with a capture time in the future: the clocks of source and collector disagree.
        pub frames_capture_ahead: u64,
        /// Frames sent, as the source reported.
        pub source_frames_sent: u64,
        /// Frames the source dropped to make room for newer ones, as it reported.
        pub source_dropped_oldest: u64,
        /// Frames the source rejected because no block was free, as it reported.
        pub source_dropped_newest: u64,
        /// Frames the source had sent over a connection that broke and dropped then, as it reported.
        pub source_dropped_reconnect: u64,
    }
}

impl DeviceCounters {
    /// Returns what became of the frames.
    pub fn ledger(&self) -> Ledger {
        Ledger {
            sent: self.frames_numbered,
            delivered: self.frames_received,
            dropped: self.frames_skipped,
            lost: self.frames_lost,
        }
    }
}

/// One device at the collector.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceSnapshot {
    /// Distinguishes a device from a later one of the same name; not part of the JSON.
    #[serde(skip)]
    pub(crate) id: u64,
    /// Its name, as the source gave it.
    pub name: String,
    /// Format of its frames, such as `640x480:rgb24`.
    pub format: String,
    /// A source for it is connected.
    pub connected: bool,
    /// Its frames can be shown as pictures.
    pub has_preview: bool,
    /// Its counters.
    #[serde(flatten)]
    pub counters: DeviceCounters,
    /// Blocks of the ring that hold its frames now.
    pub blocks_in_flight: u64,
    /// When the last frame was delivered, milliseconds since 1970; 0 before the first.
    pub last_frame_unix_ms: u64,
    /// Capture to delivery, since the start.
    #[serde(flatten)]
    pub latency: LatencySummary,
    /// Rates and latency of the last seconds; `None` in the first sample.
    pub recent: Option<Recent>,
    /// All latencies, for exact merging; not part of the JSON.
    #[serde(skip)]
    pub histogram: HistogramSnapshot,
}

/// Time from capture to delivery. `None` where no frame carried a capture time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Mean.
    pub latency_us_mean: Option<f64>,
    /// Half of the frames were at least this fast.
    pub latency_us_p50: Option<f64>,
    /// 99 of 100 frames were at least this fast.
    pub latency_us_p99: Option<f64>,
    /// 999 of 1000 frames were at least this fast.
    pub latency_us_p999: Option<f64>,
    /// The slowest frame.
    pub latency_us_max: Option<f64>,
}

impl LatencySummary {
    /// Summarizes a histogram.
    pub fn of(histogram: &HistogramSnapshot) -> Self {
        let count = histogram.count();
        let us = |q: f64| histogram.percentile_ns(q).map(|ns| ns as f64 / 1e3);
        let known = |ns: f64| (count > 0).then_some(ns / 1e3);
        Self {
            latency_us_mean: known(histogram.sum_ns() as f64 / count as f64),
            latency_us_p50: us(0.5),
            latency_us_p99: us(0.99),
            latency_us_p999: us(0.999),
            latency_us_max: known(histogram.max_ns() as f64),
        }
    }
}

/// Rates and latency of the last seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// Frames per second over the last three seconds.
    pub frames_per_s: f64,
    /// Payload bytes per second over the last three seconds.
    pub bytes_per_s: f64,
    /// Frames lost in the last ten seconds.
    pub frames_lost: u64,
    /// Median latency of the last ten seconds.
    pub latency_us_p50: Option<f64>,
    /// 99th percentile of latency of the last ten seconds.
    pub latency_us_p99: Option<f64>,
}

/// Processor and memory use of a process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuSnapshot {
    /// Processor time since its start.
    pub cpu_s: f64,
    /// Share of one core since the last sample: 200 means two cores.
    pub cpu_percent: f64,
    /// Resident memory.
    pub rss_bytes: u64,
}

/// Everything a source knows about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceSnapshot {
    /// Version of the software.
    pub version: String,
    /// When this was taken, milliseconds since 1970.
    pub unix_ms: u64,
    /// Seconds since the source started.
    pub uptime_s: f64,
    /// READs of the collector's status bytes.
    pub status_reads: u64,
    /// Sessions opened after an earlier one broke.
    pub reconnects: u64,
    /// The current session; `None` while there is none.
    pub session: Option<SessionSnapshot>,
    /// How it stands with its transmission controller; `None` without one.
    pub grant: Option<GrantSnapshot>,
    /// The RoCEv2 devices that this process has open.
    pub roce: Vec<RoceSnapshot>,
    /// Counters of all devices together.
    pub totals: SourceCounters,
    /// Processor and memory use of this process.
    pub cpu: Option<CpuSnapshot>,
    /// The devices, ordered by name.
    pub devices: Vec<SourceDeviceSnapshot>,
}

counters! {
    /// Counters of one device at a source, or of all together.
    pub struct SourceCounters {
        /// Frames handed to the queue pair.
        pub frames_sent: u64,
        /// Their payload bytes.
        pub bytes_sent: u64,
        /// Frames dropped to make room for newer ones.
        pub dropped_oldest: u64,
        /// Frames rejected because no block was free.
        pub dropped_newest: u64,
        /// Frames sent over a connection that broke, and not again; they count as sent too.
        pub dropped_reconnect: u64,
        /// Frames of which nothing was sent when they could not be there by their deadline any more, of classes whose late
        /// frames a transmission controller drops; they count as sent too.
        pub dropped_late: u64,
        /// Packet numbers that were used, each for a frame that was sent or dropped; 0 until the collector
        /// has confirmed the last frame.
        pub frames_numbered: u64,
        /// Frames that the collector's sinks have, as it says; 0 until then.
        pub frames_delivered: u64,
        /// Frames sent that could not be delivered, as far as is known.
        pub frames_lost: u64,
        /// Frames of which a transmission controller said that they cannot be there by their deadline; they
        /// are sent all the same, or dropped where their class says so.
        pub deadlines_missed: u64,
        /// Times a frame waited for a free block.
        pub block_waits: u64,
        /// Total time of those waits.
        pub block_wait_ns: u64,
    }
}

impl SourceCounters {
    /// Returns what became of the frames, once the collector has confirmed the last one.
    pub fn ledger(&self) -> Ledger {
        Ledger {
            sent: self.frames_numbered,
            delivered: self.frames_delivered,
            dropped: [self.dropped_oldest, self.dropped_newest, self.dropped_reconnect]
                .into_iter()
                .fold(self.dropped_late, u64::saturating_add),
            lost: self.frames_lost,
        }
    }
}

/// One device at a source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceDeviceSnapshot {
    /// Its name.
    pub name: String,
    /// Format of its frames, such as `640x480:rgb24`.
    pub format: String,
    /// Its counters.
    #[serde(flatten)]
    pub counters: SourceCounters,
    /// Blocks written and not yet seen free again.
    pub blocks_in_flight: u64,
}
