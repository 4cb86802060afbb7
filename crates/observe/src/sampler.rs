//! Turns snapshots into rates: keeps the samples of the last seconds for a regular viewer.
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
/// Samples further apart than this are not related: rates would be means over a pause.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Sample {
    at: Instant,
    snapshot: Arc<CollectorSnapshot>,
}

/// Samples a collector now and then, and computes the rates between samples. Each viewer with its own
/// pace (the page, the terminal) has its own sampler.
#[derive(Debug)]
pub struct Sampler {
    metrics: Arc<CollectorMetrics>,
    samples: VecDeque<Sample>,
    cpu: CpuMeter,
}

impl Sampler {
    /// Creates a sampler without samples.
    pub fn new(metrics: Arc<CollectorMetrics>) -> Self {
        Self { metrics, samples: VecDeque::new(), cpu: CpuMeter::this_process() }
    }

    /// Returns whether the next [`sample`](Self::sample) will have rates: there was one in the last
    /// 5 s.
    pub fn is_warm(&self) -> bool {
        self.samples.back().is_some_and(|last| last.at.elapsed() < PAUSE)
    }

    /// Returns all numbers, with rates over the last seconds.
    pub fn sample(&mut self) -> Arc<CollectorSnapshot> {
        let mut snapshot = self.metrics.snapshot();
        let at = Instant::now();
        self.forget_before(at);
        snapshot.cpu = sample_cpu(&mut self.cpu);
        self.fill_recent(&mut snapshot, at);
        let snapshot = Arc::new(snapshot);
        self.samples.push_back(Sample { at, snapshot: snapshot.clone() });
        snapshot
    }

    fn forget_before(&mut self, now: Instant) {
        if !self.is_warm() {
            self.samples.clear();
        }
        // The oldest sample kept is the last one outside the window, so that the window is covered.
        while self.samples.get(1).is_some_and(|second| now - second.at >= LATENCY_WINDOW) {
            self.samples.pop_front();
        }
    }

    fn fill_recent(&self, snapshot: &mut CollectorSnapshot, now: Instant) {
        let Some(oldest) = self.samples.front() else { return };
        let in_window = |sample: &&Sample| now - sample.at >= RATE_WINDOW;
        let rate_base = self.samples.iter().rev().find(in_window).unwrap_or(oldest);
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

/// Returns what happened since the start of the rate window, `before`, and of the long one, `first`.
/// A device that did not exist then began at zero.
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

/// Samples a source now and then, with its CPU use.
#[derive(Debug)]
pub struct SourceSampler {
    metrics: Arc<SourceMetrics>,
    cpu: CpuMeter,
}

impl SourceSampler {
    /// Creates a sampler without samples.
    pub fn new(metrics: Arc<SourceMetrics>) -> Self {
        Self { metrics, cpu: CpuMeter::this_process() }
    }

    /// Returns all numbers, with the CPU use since the last sample.
    pub fn sample(&mut self) -> SourceSnapshot {
        SourceSnapshot { cpu: sample_cpu(&mut self.cpu), ..self.metrics.snapshot() }
    }
}
