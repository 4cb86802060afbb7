//! One line of the output: a mechanism in a cell, over all its runs.
use crate::job::{Job, Outcome, Stream};
use crate::mechanism::Mechanism;
use crate::resources::Resources;
use crate::stats::{Spread, decimals, tenths};
use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) what: Mechanism,
    /// What moves the bytes: `shm`, `kernel`, `iceoryx2`, `ucx`; `none` for a plain copy.
    pub(crate) provider: &'static str,
    pub(crate) bytes: usize,
    /// Blocks; 1 where the mechanism has one buffer.
    pub(crate) blocks: usize,
    /// Throughput, payload only: median over batches.
    pub(crate) bytes_per_s: f64,
    pub(crate) bytes_per_s_p5: f64,
    pub(crate) bytes_per_s_p95: f64,
    pub(crate) blocks_per_s: f64,
    /// One-way latency: median over batches of the batch's median.
    pub(crate) latency_ns_p50: f64,
    pub(crate) latency_ns_p50_p5: f64,
    pub(crate) latency_ns_p50_p95: f64,
    /// Median over batches of the batch's 99th percentile.
    pub(crate) latency_ns_p99: f64,
    /// Cache-line hand-over between the same processes, in turn with the latency batches; `null`
    /// where it was not measured.
    pub(crate) cache_line_ns_p50: Option<f64>,
    /// Latency as a multiple of the hand-over directly before it: median over batches.
    pub(crate) latency_over_cache_line: Option<f64>,
    /// CPU seconds of the source process for a gigabyte (10^9 bytes) of payload.
    pub(crate) cpu_s_per_gb_source: f64,
    pub(crate) cpu_s_per_gb_collector: f64,
    /// What both roles need, and the status bytes.
    #[serde(flatten)]
    pub(crate) resources: Resources,
    /// How both sides waited: `spin`, `yield` or `block`; `own` where the program decides itself.
    pub(crate) wait: String,
    pub(crate) runs: usize,
    pub(crate) batches: usize,
    /// Batches thrown away because a role did not have its core.
    pub(crate) batches_repeated: usize,
    /// Smallest part of its core that a polling role had in a batch that counts; `null` where
    /// nobody looked.
    pub(crate) core_share_min: Option<f64>,
    /// A run of mostly disturbed batches had to be kept: do not trust this row. `null` where nobody
    /// looked.
    pub(crate) disturbed: Option<bool>,
    /// Blocks whose every byte was compared in the twin runs.
    pub(crate) verified_blocks: u64,
    /// Medians of the single runs, for comparisons run by run.
    #[serde(skip)]
    pub(crate) per_run: Vec<RunMedians>,
    /// Latency of each batch with the hand-over directly before it, in nanoseconds.
    #[serde(skip)]
    pub(crate) over_floor: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RunMedians {
    pub(crate) blocks_per_s: f64,
    pub(crate) latency_ns: f64,
}

impl RunMedians {
    fn of(outcome: &Outcome) -> Self {
        let rates: Vec<f64> = outcome.streams.iter().map(blocks_per_s).collect();
        let latencies: Vec<f64> = outcome.ping_pongs.iter().map(|p| p.middle_ns).collect();
        Self { blocks_per_s: Spread::of(&rates).p50, latency_ns: Spread::of(&latencies).p50 }
    }
}

fn blocks_per_s(stream: &Stream) -> f64 {
    stream.count as f64 * 1e9 / stream.wall_ns as f64
}

impl Row {
    pub(crate) fn new(job: &Job, outcomes: &[Outcome]) -> Self {
        let streams: Vec<_> = outcomes.iter().flat_map(|o| &o.streams).collect();
        let pings: Vec<_> = outcomes.iter().flat_map(|o| &o.ping_pongs).collect();
        let rates: Vec<f64> = streams.iter().map(|s| blocks_per_s(s)).collect();
        let blocks_per_s = Spread::of(&rates);
        let p50 = Spread::of(&pings.iter().map(|p| p.p50_ns).collect::<Vec<_>>());
        let p99 = Spread::of(&pings.iter().map(|p| p.p99_ns).collect::<Vec<_>>());
        let floors: Vec<f64> = pings.iter().map(|p| p.floor_ns).collect();
        let over: Vec<f64> = pings.iter().map(|p| p.middle_ns / p.floor_ns).collect();
        let watched = job.what.polls() && job.what != Mechanism::Ucx;
        let same_processes = job.what != Mechanism::Ucx;
        let bytes = job.bytes as f64;
        let moved: f64 = streams.iter().map(|s| s.count as f64 * bytes).sum();
        let cpu = |of: fn(&Stream) -> u64| {
            let ns: u64 = streams.iter().map(|s| of(s)).sum();
            decimals(ns as f64 / moved.max(1.0), 6)
        };
        let shares = streams.iter().map(|s| s.core_share).chain(pings.iter().map(|p| p.core_share));
        Self {
            what: job.what,
            provider: job.what.moved_by(job.provider),
            bytes: job.bytes,
            blocks: if job.what == Mechanism::Ucx { 1 } else { job.blocks },
            bytes_per_s: (blocks_per_s.p50 * bytes).round(),
            bytes_per_s_p5: (blocks_per_s.p5 * bytes).round(),
            bytes_per_s_p95: (blocks_per_s.p95 * bytes).round(),
            blocks_per_s: blocks_per_s.p50.round(),
            latency_ns_p50: tenths(p50.p50),
            latency_ns_p50_p5: tenths(p50.p5),
            latency_ns_p50_p95: tenths(p50.p95),
            latency_ns_p99: tenths(p99.p50),
            cache_line_ns_p50: same_processes.then(|| tenths(Spread::of(&floors).p50)),
            latency_over_cache_line: same_processes.then(|| decimals(Spread::of(&over).p50, 4)),
            cpu_s_per_gb_source: cpu(|s| s.source_cpu_ns),
            cpu_s_per_gb_collector: cpu(|s| s.collector_cpu_ns),
            resources: Resources::new(job.what, outcomes),
            wait: wait_name(job),
            runs: outcomes.len(),
            batches: streams.len().max(pings.len()),
            batches_repeated: outcomes.iter().map(|o| o.repeated).sum(),
            core_share_min: watched.then(|| decimals(shares.fold(1.0, f64::min), 4)),
            disturbed: Outcome::disturbed(outcomes),
            verified_blocks: outcomes.iter().map(|o| o.verified_blocks).sum(),
            per_run: outcomes.iter().map(RunMedians::of).collect(),
            over_floor: pings.iter().map(|p| (p.middle_ns, p.floor_ns)).collect(),
        }
    }
}

fn wait_name(job: &Job) -> String {
    match (job.what.is_program(), job.what.polls()) {
        (true, _) => "own".to_owned(),
        (false, true) => format!("{:?}", job.wait).to_lowercase(),
        (false, false) => "block".to_owned(),
    }
}
