//! What `--json` writes: one object a line. The fields are documented in docs/reference/cli.md.
use catchment::observe::{GrantSnapshot, QueueSizes, SessionSnapshot, SourceCounters};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum CollectEvent {
    Listening(Listening),
    Session(SessionSnapshot),
    Progress(CollectProgress),
    Summary(CollectSummary),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) address: String,
    pub(crate) dashboard: Option<String>,
    pub(crate) out: Option<String>,
    pub(crate) pid: u32,
}

/// What became of frames at the collector.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) frames_received: u64,
    pub(crate) frames_verified: u64,
    /// All packet numbers that went by: received, skipped or lost.
    pub(crate) frames_numbered: u64,
    pub(crate) frames_lost: u64,
    pub(crate) frames_lost_missing: u64,
    pub(crate) frames_lost_damaged: u64,
    pub(crate) frames_lost_sink: u64,
    pub(crate) frames_skipped: u64,
    /// As the sources reported.
    pub(crate) frames_dropped_oldest: u64,
    pub(crate) frames_dropped_newest: u64,
    pub(crate) frames_dropped_reconnect: u64,
    pub(crate) bytes_received: u64,
    pub(crate) latency_us_p50: Option<f64>,
    pub(crate) latency_us_p99: Option<f64>,
}

impl Received {
    /// Returns how many frames the sources dropped, as far as the packet numbers or their reports tell.
    pub(crate) fn dropped(&self) -> u64 {
        let reported =
            [self.frames_dropped_oldest, self.frames_dropped_newest, self.frames_dropped_reconnect];
        self.frames_skipped.max(reported.into_iter().fold(0, u64::saturating_add))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CollectProgress {
    pub(crate) uptime_s: f64,
    pub(crate) sessions_open: u64,
    pub(crate) devices: usize,
    /// The latencies are those of the last seconds.
    #[serde(flatten)]
    pub(crate) received: Received,
    pub(crate) frames_per_s: Option<f64>,
    pub(crate) bytes_per_s: Option<f64>,
    pub(crate) cpu_percent: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CollectSummary {
    pub(crate) uptime_s: f64,
    #[serde(flatten)]
    pub(crate) received: Received,
    pub(crate) frames_duplicate: u64,
    pub(crate) checksum_errors: u64,
    pub(crate) sink_errors: u64,
    /// Not stored before the end.
    pub(crate) frames_given_up: u64,
    pub(crate) latency_us_p999: Option<f64>,
    pub(crate) latency_us_max: Option<f64>,
    pub(crate) cpu_s: f64,
    pub(crate) queue_pairs: u64,
    /// The collector's provider, in most sessions.
    pub(crate) provider: Option<String>,
    pub(crate) source_provider: Option<String>,
    pub(crate) provider_reason: Option<String>,
    pub(crate) sessions_refused: u64,
    pub(crate) out: Option<String>,
    pub(crate) devices: Vec<CollectedDevice>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CollectedDevice {
    pub(crate) name: String,
    pub(crate) format: String,
    #[serde(flatten)]
    pub(crate) received: Received,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum SendEvent {
    Waiting { collector: String },
    Connected(Connected),
    Session(SessionSnapshot),
    Progress(SendProgress),
    Summary(SendSummary),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Connected {
    pub(crate) collector: String,
    pub(crate) devices: usize,
    pub(crate) pid: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SendProgress {
    pub(crate) uptime_s: f64,
    pub(crate) frames_sent: u64,
    pub(crate) frames_dropped: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) deadlines_missed: u64,
    pub(crate) reconnects: u64,
    pub(crate) cpu_percent: Option<f64>,
    /// Without a controller there is none.
    pub(crate) grant: Option<GrantSnapshot>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SendSummary {
    /// From the first frame to the last.
    pub(crate) seconds: f64,
    #[serde(flatten)]
    pub(crate) fates: SentFates,
    /// Frames that the collector has not confirmed.
    pub(crate) frames_undelivered: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) deadlines_missed: u64,
    pub(crate) block_waits: u64,
    pub(crate) block_wait_s: f64,
    pub(crate) reconnects: u64,
    /// Share of one core while frames flowed.
    pub(crate) cpu_percent: f64,
    pub(crate) errors: Vec<String>,
    pub(crate) devices: Vec<SentDevice>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SentDevice {
    pub(crate) name: String,
    pub(crate) format: String,
    #[serde(flatten)]
    pub(crate) fates: SentFates,
    pub(crate) frames_dropped: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) deadlines_missed: u64,
}

/// What became of frames, as their source knows.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct SentFates {
    pub(crate) frames_sent: u64,
    /// 0 until the collector has confirmed the last frame.
    pub(crate) frames_delivered: u64,
    pub(crate) frames_lost: u64,
    pub(crate) frames_dropped_oldest: u64,
    pub(crate) frames_dropped_newest: u64,
    pub(crate) frames_dropped_reconnect: u64,
    /// Too late for their deadlines, as a transmission controller said.
    pub(crate) frames_dropped_late: u64,
}

impl SentFates {
    pub(crate) fn of(counters: &SourceCounters) -> Self {
        Self {
            frames_sent: counters.frames_sent,
            frames_delivered: counters.frames_delivered,
            frames_lost: counters.frames_lost,
            frames_dropped_oldest: counters.dropped_oldest,
            frames_dropped_newest: counters.dropped_newest,
            frames_dropped_reconnect: counters.dropped_reconnect,
            frames_dropped_late: counters.dropped_late,
        }
    }

    /// Returns how many frames were dropped before anything of them was sent.
    pub(crate) fn dropped(&self) -> u64 {
        self.frames_dropped_oldest + self.frames_dropped_newest + self.frames_dropped_late
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DemoSummary {
    pub(crate) devices: usize,
    pub(crate) format: String,
    pub(crate) seconds: f64,
    /// Frames a second of each device; `None`: as many as possible, or as the clips say.
    pub(crate) rate_asked: Option<f64>,
    pub(crate) rate_achieved: f64,
    pub(crate) frames_sent: u64,
    pub(crate) frames_received: u64,
    pub(crate) frames_verified: u64,
    pub(crate) frames_lost: u64,
    pub(crate) frames_dropped: u64,
    pub(crate) bytes_received: u64,
    pub(crate) throughput_bytes_per_s: f64,
    pub(crate) latency_us_p50: Option<f64>,
    pub(crate) latency_us_p99: Option<f64>,
    pub(crate) latency_us_p999: Option<f64>,
    pub(crate) cpu_percent_source: f64,
    pub(crate) cpu_percent_collector: f64,
    /// Of the demo's own agent, which it has where it asks for one.
    pub(crate) cpu_percent_agent: Option<f64>,
    pub(crate) queue_pairs: u64,
    pub(crate) provider: Option<String>,
    pub(crate) source_provider: Option<String>,
    pub(crate) provider_reason: Option<String>,
    pub(crate) queues_source: Option<QueueSizes>,
    pub(crate) queues_collector: Option<QueueSizes>,
    pub(crate) dashboard: Option<String>,
    pub(crate) out_dir: Option<String>,
}
