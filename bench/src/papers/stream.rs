//! `stream`: blocks as fast as they go from process to process, then to and fro, the mechanisms of a
//! cell in turn.
use super::{
    Bench,
    record::{Cell, Conditions, Row},
    scenario::{Measure, Scenario},
};
use crate::{
    job::{Job, Outcome, PingPong, Program, Stream, What},
    mechanism::{Mechanism, Provider},
};
use anyhow::Result;

/// What all mechanisms have in common here.
const CACHES: &str = "the same blocks again and again";

/// Measures the cells of one part of a scenario on one provider.
pub(super) fn measure(
    bench: &mut Bench,
    scenario: &Scenario,
    part: &Measure,
    provider: Provider,
) -> Result<Vec<Row>> {
    let effort = part.effort(bench.quick()).clone();
    let network = bench.network(provider)?;
    let mut rows = Vec::new();
    for &bytes in &effort.bytes {
        for &blocks in part.blocks(bench.quick()) {
            bench.progress(&format!(
                "{} {provider}: {bytes} B, {blocks} blocks",
                scenario.id
            ));
            let name = format!("{provider}, {bytes} B, {blocks} blocks");
            let realtime = bench.realtime(provider, part.wait);
            let job = |bench: &mut Bench, mechanism: Mechanism| Job {
                what: mechanism
                    .peer()
                    .unwrap_or(What::Mechanism(mechanism, provider)),
                bytes,
                blocks,
                source_core: 0,
                collector_core: bench.second_core(),
                wait: part.wait,
                realtime,
                batch_ms: effort.milliseconds,
                batches: effort.repetitions,
                unique: bench.unique(),
                program: Program::Stream,
                network: network.clone(),
            };
            let found = bench.in_turn(effort.restarts, &name, &part.mechanisms, job);
            for (mechanism, outcomes) in &found {
                let cell = Cell::new(provider, *mechanism, bytes, blocks);
                let conditions = Conditions {
                    wait: format!("{:?}", part.wait).to_lowercase(),
                    realtime,
                    caches: CACHES,
                    ..Conditions::default()
                };
                rows.extend(rows_of(&scenario.id, &cell, &conditions, outcomes));
            }
        }
    }
    Ok(rows)
}

/// All metrics of one mechanism in one cell.
fn rows_of(id: &str, cell: &Cell, conditions: &Conditions, outcomes: &[Outcome]) -> Vec<Row> {
    let streams: Vec<&Stream> = outcomes.iter().flat_map(|o| &o.streams).collect();
    let pings: Vec<&PingPong> = outcomes.iter().flat_map(|o| &o.ping_pongs).collect();
    let shares = streams.iter().map(|s| s.core_share);
    let shares = shares.chain(pings.iter().map(|p| p.core_share));
    let bytes = cell.bytes as f64;
    let speeds = streams
        .iter()
        .map(|s| s.count as f64 * 1e9 / s.wall_ns as f64);
    let speeds: Vec<f64> = speeds.collect();
    let conditions = Conditions {
        restarts: outcomes.len(),
        repeated: outcomes.iter().map(|o| o.repeated).sum(),
        disturbed: outcomes.iter().any(|o| o.disturbed),
        core_share_min: Some(shares.fold(1.0, f64::min)),
        verified_blocks: outcomes.iter().map(|o| o.verified_blocks).sum(),
        achieved_bytes_per_s: Some(crate::stats::percentile(&speeds, 0.5) * bytes),
        ..conditions.clone()
    };
    let of_streams = |value: &dyn Fn(&Stream) -> f64| streams.iter().map(|s| value(s)).collect();
    let of_pings = |value: fn(&PingPong) -> f64| pings.iter().map(|p| value(p)).collect();
    let reads = |s: &Stream| s.status_reads.map(|n| n as f64 / s.count as f64);
    let looks = outcomes.iter().filter_map(|o| o.status_read);
    let metrics: Vec<((&'static str, &'static str), Vec<f64>)> = vec![
        (("blocks_per_s", "1/s"), speeds.clone()),
        (
            ("bytes_per_s", "B/s"),
            speeds.iter().map(|s| s * bytes).collect(),
        ),
        (("block_ns", "ns"), speeds.iter().map(|s| 1e9 / s).collect()),
        (("latency_ns", "ns"), of_pings(|p| p.p50_ns)),
        (("latency_ns_p99", "ns"), of_pings(|p| p.p99_ns)),
        (
            ("cpu_s_per_gb_source", "s/GB"),
            of_streams(&|s| s.source_cpu_ns as f64 / (s.count as f64 * bytes)),
        ),
        (
            ("cpu_s_per_gb_collector", "s/GB"),
            of_streams(&|s| s.collector_cpu_ns as f64 / (s.count as f64 * bytes)),
        ),
        (
            ("cpu_percent_source", "%"),
            of_streams(&|s| 100.0 * s.source_cpu_ns as f64 / s.wall_ns as f64),
        ),
        (
            ("cpu_percent_collector", "%"),
            of_streams(&|s| 100.0 * s.collector_cpu_ns as f64 / s.wall_ns as f64),
        ),
        (
            ("status_reads_per_block", "1"),
            streams.iter().filter_map(|s| reads(s)).collect(),
        ),
        (("sync_ns", "ns"), looks.map(|look| look.p50_ns).collect()),
    ];
    let measured = metrics.into_iter().filter(|(_, values)| !values.is_empty());
    measured
        .map(|(metric, values)| Row::new(id, cell, metric, values, &conditions))
        .collect()
}
