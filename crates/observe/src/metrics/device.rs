//! Metrics of one device at the collector.
use super::FrameCounters;
use crate::preview::Preview;
use crate::snapshot::{DeviceCounters, DeviceSnapshot, LatencySummary};
use crate::sync::{lock, read, write};
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, RwLock};

/// What a source reports for one device, counted since that source started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceTotals {
    /// Frames handed to the queue pair.
    pub frames_sent: u64,
    /// Frames dropped to make room for newer ones.
    pub dropped_oldest: u64,
    /// Frames dropped because no block was free.
    pub dropped_newest: u64,
    /// Frames sent over a connection that broke, and dropped instead of being sent again.
    pub dropped_reconnect: u64,
}

/// The last report of a source, to turn its running totals into differences.
#[derive(Debug, Default)]
struct Reported {
    instance: u64,
    last: SourceTotals,
    sum: SourceTotals,
}

/// Counters, latency and picture of one device at the collector. Shared by every thread that
/// handles the device. The data path counts in [`FrameCounters`].
#[derive(Debug)]
pub struct DeviceMetrics {
    id: u64,
    name: Arc<str>,
    format: RwLock<Arc<str>>,
    connected: AtomicBool,
    frames: FrameCounters,
    reported: Mutex<Reported>,
    /// Whether the sink refused the frame that it was offered last, and why it did when it last did.
    sink_refuses: AtomicBool,
    sink_refusal: Mutex<String>,
    preview: Preview,
}

impl Deref for DeviceMetrics {
    type Target = FrameCounters;

    #[inline]
    fn deref(&self) -> &FrameCounters {
        &self.frames
    }
}

impl DeviceMetrics {
    pub(super) fn new(id: u64, name: &str, format: &str) -> Self {
        Self {
            id,
            name: name.into(),
            format: RwLock::new(format.into()),
            connected: AtomicBool::new(true),
            frames: FrameCounters::default(),
            reported: Mutex::default(),
            sink_refuses: AtomicBool::new(false),
            sink_refusal: Mutex::default(),
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

    /// Adds the totals that source process `instance` reported. Reports may repeat, and restart from
    /// zero with a new instance; the sums only grow. Takes a lock: not for the data path.
    pub fn source_reported(&self, instance: u64, totals: SourceTotals) {
        let mut reported = lock(&self.reported);
        if reported.instance != instance {
            reported.instance = instance;
            reported.last = SourceTotals::default();
        }
        let last = std::mem::replace(&mut reported.last, totals);
        let sum = &mut reported.sum;
        // A source may report anything, and again as another instance.
        let add = |sum: &mut u64, now: u64, last| {
            *sum = sum.saturating_add(now.saturating_sub(last));
        };
        add(&mut sum.frames_sent, totals.frames_sent, last.frames_sent);
        add(&mut sum.dropped_oldest, totals.dropped_oldest, last.dropped_oldest);
        add(&mut sum.dropped_newest, totals.dropped_newest, last.dropped_newest);
        add(&mut sum.dropped_reconnect, totals.dropped_reconnect, last.dropped_reconnect);
    }

    /// Marks the device as connected to a source, or not. Changes no counter.
    pub fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Relaxed);
    }

    /// Notes why the sink refused a frame. Takes a lock: not for the data path.
    pub fn sink_refused(&self, why: &dyn std::fmt::Display) {
        *lock(&self.sink_refusal) = why.to_string();
        self.sink_refuses.store(true, Relaxed);
    }

    /// Notes that the sink took a frame.
    #[inline]
    pub fn sink_took(&self) {
        if self.sink_refuses.load(Relaxed) {
            self.sink_refuses.store(false, Relaxed);
        }
    }

    /// Returns whether the sink refused the frame that it was offered last.
    pub fn is_sink_refusing(&self) -> bool {
        self.sink_refuses.load(Relaxed)
    }

    /// Returns why the sink last refused a frame. Takes a lock: not for the data path.
    pub fn sink_refusal(&self) -> String {
        lock(&self.sink_refusal).clone()
    }

    /// Sets the format of a source that came back. Takes a lock: not for the data path.
    pub(super) fn set_format(&self, format: &str) {
        if &**read(&self.format) != format {
            *write(&self.format) = format.into();
            self.preview.set_format(format);
        }
    }

    fn counters(&self, timed: u64) -> DeviceCounters {
        let reported = lock(&self.reported).sum;
        DeviceCounters {
            source_frames_sent: reported.frames_sent,
            source_dropped_oldest: reported.dropped_oldest,
            source_dropped_newest: reported.dropped_newest,
            source_dropped_reconnect: reported.dropped_reconnect,
            ..self.frames.counters(timed)
        }
    }

    /// Returns all numbers of the device at this moment.
    pub fn snapshot(&self) -> DeviceSnapshot {
        let latency = self.frames.latency();
        DeviceSnapshot {
            id: self.id,
            name: self.name.to_string(),
            format: read(&self.format).to_string(),
            connected: self.connected.load(Relaxed),
            has_preview: self.preview.is_possible(),
            counters: self.counters(latency.count()),
            blocks_in_flight: self.frames.blocks_in_flight(),
            last_frame_unix_ms: self.frames.last_frame_unix_ms(),
            latency: LatencySummary::of(&latency),
            recent: None,
            histogram: latency,
        }
    }
}
