//! `stream`: blocks as fast as they go from process to process, then to and fro, the mechanisms of a
//! cell in turn.
use super::bench::Experiment;
use super::record::{Cell, Conditions, Row};
use crate::job::{Outcome, PingPong, Program, Stream};
use crate::mechanism::Mechanism;

pub(super) fn measure(of: &mut Experiment<'_>) {
    for size in of.sizes() {
        of.progress(&format!("{} B, {} blocks", size.0, size.1));
        let mechanisms = of.bench.present(&of.part.mechanisms);
        for (mechanism, outcomes) in
            of.in_turn(of.effort.restarts, &mechanisms, size, Program::Stream)
        {
            let (cell, conditions) = (of.cell(mechanism, size), of.conditions(&outcomes));
            of.rows.extend(rows_of(of.id, &cell, &conditions, &outcomes));
        }
    }
}

type Metrics = Vec<((&'static str, &'static str), Vec<f64>)>;

fn rows_of(id: &str, cell: &Cell, conditions: &Conditions, outcomes: &[Outcome]) -> Vec<Row> {
    let streams: Vec<&Stream> = outcomes.iter().flat_map(|o| &o.streams).collect();
    let pings: Vec<&PingPong> = outcomes.iter().flat_map(|o| &o.ping_pongs).collect();
    let speeds = streams.iter().map(|s| blocks_per_s(s));
    let speeds: Vec<f64> = speeds.collect();
    // Programs of others are not watched, and what sleeps needs no core.
    let watched = cell.mechanism.polls() && !cell.mechanism.is_program();
    let shares = streams.iter().map(|s| s.core_share).chain(pings.iter().map(|p| p.core_share));
    let conditions = Conditions {
        core_share_min: watched.then(|| shares.fold(1.0, f64::min)),
        achieved_bytes_per_s: (!speeds.is_empty())
            .then(|| crate::stats::percentile(&speeds, 0.5) * cell.bytes as f64),
        ..conditions.clone()
    };
    let latency = |value: fn(&PingPong) -> f64| pings.iter().map(|p| value(p)).collect();
    let mut metrics = of_streams(&streams, cell.bytes as f64);
    metrics.push((("latency_ns", "ns"), latency(|p| p.p50_ns)));
    if cell.mechanism != Mechanism::Iperf3 {
        // Those know a mean.
        metrics.push((("latency_ns_p99", "ns"), latency(|p| p.p99_ns)));
    }
    if !cell.mechanism.is_program() {
        let softirq = |outcome: &Outcome| softirq_s_per_gb(outcome, cell.bytes as f64);
        metrics.push((("softirq_s_per_gb", "s/GB"), outcomes.iter().filter_map(softirq).collect()));
    }
    metrics.extend(of_resources(outcomes));
    let measured = metrics.into_iter().filter(|(_, values)| !values.is_empty());
    measured.map(|(metric, values)| Row::new(id, cell, metric, values, &conditions)).collect()
}

/// Of the machine: what the network takes for both roles is charged to whoever runs.
fn softirq_s_per_gb(outcome: &Outcome, bytes: f64) -> Option<f64> {
    let blocks: u64 = outcome.streams.iter().map(|stream| stream.count).sum();
    (blocks > 0).then(|| outcome.softirq_ns as f64 / (blocks as f64 * bytes))
}

fn blocks_per_s(stream: &Stream) -> f64 {
    stream.count as f64 * 1e9 / stream.wall_ns as f64
}

fn of_streams(streams: &[&Stream], bytes: f64) -> Metrics {
    let each = |value: &dyn Fn(&Stream) -> f64| streams.iter().map(|s| value(s)).collect();
    let s_per_gb = |ns: u64, s: &Stream| ns as f64 / (s.count as f64 * bytes);
    let percent = |ns: u64, s: &Stream| 100.0 * ns as f64 / s.wall_ns as f64;
    let reads = |s: &&Stream| s.status_reads.map(|n| n as f64 / s.count as f64);
    vec![
        (("blocks_per_s", "1/s"), each(&blocks_per_s)),
        (("bytes_per_s", "B/s"), each(&|s| blocks_per_s(s) * bytes)),
        (("block_ns", "ns"), each(&|s| 1e9 / blocks_per_s(s))),
        (("cpu_s_per_gb_source", "s/GB"), each(&|s| s_per_gb(s.source_cpu_ns, s))),
        (("cpu_s_per_gb_collector", "s/GB"), each(&|s| s_per_gb(s.collector_cpu_ns, s))),
        (("cpu_percent_source", "%"), each(&|s| percent(s.source_cpu_ns, s))),
        (("cpu_percent_collector", "%"), each(&|s| percent(s.collector_cpu_ns, s))),
        (("status_reads_per_block", "1"), streams.iter().filter_map(reads).collect()),
    ]
}

fn of_resources(outcomes: &[Outcome]) -> Metrics {
    // Programs of others say nothing of these.
    let each = |value: fn(&Outcome) -> u64| -> Vec<f64> {
        outcomes.iter().map(|o| value(o) as f64).filter(|value| *value > 0.0).collect()
    };
    let queue_pairs = |o: &Outcome| o.source.queues.map_or(0, |q| q.queue_pairs.into());
    let looks = outcomes.iter().filter_map(|o| o.status_read);
    vec![
        (("sync_ns", "ns"), looks.map(|look| look.p50_ns).collect()),
        (("rss_bytes_source", "B"), each(|o| o.source.rss_bytes_peak)),
        (("rss_bytes_collector", "B"), each(|o| o.collector.rss_bytes_peak)),
        (("queue_pairs", "1"), each(queue_pairs)),
    ]
}
