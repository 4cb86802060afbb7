//! Turns snapshots into rates: remembers the last seconds of whoever looks regularly.
use super::cpu::CpuMeter;
use super::metrics::{CollectorMetrics, SourceMetrics};
use super::snapshot::{
    CollectorSnapshot, CpuSnapshot, DeviceCounters, DeviceSnapshot, LatencySummary, Recent,
    SourceSnapshot,
};
use crate::HistogramSnapshot;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rates are means over this time.
const RATE_WINDOW: Duration = Duration::from_secs(3);
/// Percentiles need more frames than rates do.
const LATENCY_WINDOW: Duration = Duration::from_secs(10);
/// Looks further apart than this do not belong together: rates would be means over a pause.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Look {
    at: Instant,
    snapshot: Arc<CollectorSnapshot>,
}

/// Looks at a collector now and then, and knows the rates between the looks. Each viewer that looks
/// at its own pace (the page, the terminal) has its own.
#[derive(Debug)]
pub struct Sampler {
    metrics: Arc<CollectorMetrics>,
    looks: VecDeque<Look>,
    cpu: CpuMeter,
}

impl Sampler {
    /// Creates a sampler that has not looked yet.
    pub fn new(metrics: Arc<CollectorMetrics>) -> Self {
        Self { metrics, looks: VecDeque::new(), cpu: CpuMeter::this_process() }
    }

    /// Returns whether the next [`sample`](Self::sample) will know rates: somebody looked in the
    /// last 5 s.
    pub fn is_warm(&self) -> bool {
        self.looks.back().is_some_and(|last| last.at.elapsed() < PAUSE)
    }

    /// Looks: all numbers, with rates since the looks of the last seconds.
    pub fn sample(&mut self) -> Arc<CollectorSnapshot> {
        let mut snapshot = self.metrics.snapshot();
        let at = Instant::now();
        self.forget_before(at);
        snapshot.cpu = sample_cpu(&mut self.cpu);
        self.fill_recent(&mut snapshot, at);
        let snapshot = Arc::new(snapshot);
        self.looks.push_back(Look { at, snapshot: snapshot.clone() });
        snapshot
    }

    fn forget_before(&mut self, now: Instant) {
        if !self.is_warm() {
            self.looks.clear();
        }
        // The oldest look kept is the last one outside the window, so that the window is covered.
        while self.looks.get(1).is_some_and(|second| now - second.at >= LATENCY_WINDOW) {
            self.looks.pop_front();
        }
    }

    fn fill_recent(&self, snapshot: &mut CollectorSnapshot, now: Instant) {
        let Some(oldest) = self.looks.front() else { return };
        let in_window = |look: &&Look| now - look.at >= RATE_WINDOW;
        let rate_base = self.looks.iter().rev().find(in_window).unwrap_or(oldest);
        let seconds = (now - rate_base.at).as_secs_f64();
        for device in &mut snapshot.devices {
            let before = find(&rate_base.snapshot, device).map(|d| &d.counters);
            let first = find(&oldest.snapshot, device).map(|d| (&d.counters, &d.histogram));
            device.recent =
                Some(recent((&device.counters, &device.histogram), before, first, seconds));
        }
        let first = (&oldest.snapshot.totals, &oldest.snapshot.histogram);
        let now = (&snapshot.totals, &snapshot.histogram);
        snapshot.recent = Some(recent(now, Some(&rate_base.snapshot.totals), Some(first), seconds));
    }
}

/// Counters and latencies at one moment.
type Counted<'a> = (&'a DeviceCounters, &'a HistogramSnapshot);

/// Returns what happened since the start of the rate window, `before`, and that of the long one,
/// `first`. A device that was not there then began at zero.
fn recent(
    (now, latencies): Counted<'_>,
    before: Option<&DeviceCounters>,
    first: Option<Counted<'_>>,
    seconds: f64,
) -> Recent {
    let zero = DeviceCounters::default();
    let before = before.unwrap_or(&zero);
    let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let (first, latency) = match first {
        Some((first, histogram)) => (first, LatencySummary::of(&latencies.since(histogram))),
        None => (&zero, LatencySummary::of(latencies)),
    };
    Recent {
        frames_per_s: per_second(now.frames_received, before.frames_received),
        bytes_per_s: per_second(now.bytes_received, before.bytes_received),
        frames_lost: now.frames_lost.saturating_sub(first.frames_lost),
        latency_us_p50: latency.latency_us_p50,
        latency_us_p99: latency.latency_us_p99,
    }
}

fn find<'a>(
    snapshot: &'a CollectorSnapshot,
    device: &DeviceSnapshot,
) -> Option<&'a DeviceSnapshot> {
    let at = snapshot.devices.binary_search_by(|d| d.name.cmp(&device.name)).ok()?;
    Some(&snapshot.devices[at]).filter(|d| d.id == device.id)
}

fn sample_cpu(meter: &mut CpuMeter) -> Option<CpuSnapshot> {
    let error = match meter.sample() {
        Ok(sample) => return Some(sample),
        Err(error) => error,
    };
    tracing::debug!(%error, "cannot read CPU usage");
    None
}

/// Looks at a source now and then; adds its CPU use to the numbers.
#[derive(Debug)]
pub struct SourceSampler {
    metrics: Arc<SourceMetrics>,
    cpu: CpuMeter,
}

impl SourceSampler {
    /// Creates a sampler that has not looked yet.
    pub fn new(metrics: Arc<SourceMetrics>) -> Self {
        Self { metrics, cpu: CpuMeter::this_process() }
    }

    /// Looks: all numbers, with the CPU use since the last look.
    pub fn sample(&mut self) -> SourceSnapshot {
        SourceSnapshot { cpu: sample_cpu(&mut self.cpu), ..self.metrics.snapshot() }
    }
}
