//! `duplex`: messages of the beam-diagnostics paper's client and server beside TCP with as many threads,
//! the mechanisms of a size in turn.
use super::bench::Experiment;
use super::record::{Cell, Conditions, Row};
use crate::duplex::{Found, Job, Span};
use crate::job::Network;
use crate::mechanism::Mechanism;

const SIDES: [&str; 2] = ["client", "server"];

pub(super) fn measure(of: &mut Experiment<'_>) {
    for (bytes, blocks) in of.sizes() {
        of.progress(&format!("{bytes} B, {blocks} blocks"));
        let found = of.part.mechanisms.iter().map(|&one| (one, Vec::new()));
        let mut found: Vec<(Mechanism, Vec<Found>)> = found.collect();
        for _ in 0..of.effort.restarts {
            for (what, mine) in &mut found {
                let job = Job {
                    what: *what,
                    provider: of.provider,
                    bytes,
                    blocks,
                    trials: of.effort.count,
                    network: of.network(),
                };
                let outcome = job.run().or_else(|error| {
                    let name = format!("{}, {bytes} B, {what}", of.provider);
                    of.bench.failures.push(format!("{name}, measured again: {error:#}"));
                    job.run()
                });
                match outcome {
                    Ok(found) => mine.push(found),
                    Err(error) => of.bench.failures.push(format!("{what}: {error:#}")),
                }
            }
        }
        for (what, found) in found.into_iter().filter(|(_, found)| !found.is_empty()) {
            let cell = of.cell(what, (bytes, blocks));
            of.rows.extend(rows_of(of.id, &cell, &found));
        }
    }
}

fn rows_of(id: &str, cell: &Cell, found: &[Found]) -> Vec<Row> {
    let networks = found.iter().filter_map(|one| one.network);
    let network: Option<Network> = networks.reduce(std::ops::Add::add);
    let bytes = cell.bytes as f64;
    let each = |value: &dyn Fn(&Found) -> f64| found.iter().map(value).collect::<Vec<f64>>();
    let rate = |one: &Found| one.stream.messages as f64 * bytes * 1e9 / one.stream.wall_ns as f64;
    let rates = each(&rate);
    let conditions = Conditions {
        wait: "asleep until an event".to_owned(),
        caches: "the same blocks again and again",
        restarts: found.len(),
        verified_blocks: found.iter().map(|one| one.verified_messages).sum(),
        achieved_bytes_per_s: Some(crate::stats::percentile(&rates, 0.5)),
        ..Conditions::default()
    }
    .with(network);
    // A trial moves its bytes both ways.
    let both_ways = |one: &Found| 2.0 * one.trials.messages as f64 * bytes;
    let one_way = |one: &Found| one.stream.messages as f64 * bytes;
    let cpu = |span: &Span, side: usize| span.used_ns[side].values().sum::<u64>() as f64;
    let percent = |span: &Span, side| 100.0 * cpu(span, side) / span.wall_ns as f64;
    let metrics = vec![
        (("latency_ns", "ns"), each(&|one| one.p50_ns)),
        (("latency_ns_mean", "ns"), each(&|one| one.mean_ns)),
        (("latency_ns_p99", "ns"), each(&|one| one.p99_ns)),
        (("trials", "1"), each(&|one| one.trials.messages as f64)),
        (("trial_bytes_per_s", "B/s"), each(&|one| bytes * 1e9 / one.mean_ns)),
        (("trial_cpu_s_per_gb_source", "s/GB"), each(&|one| cpu(&one.trials, 0) / both_ways(one))),
        (
            ("trial_cpu_s_per_gb_collector", "s/GB"),
            each(&|one| cpu(&one.trials, 1) / both_ways(one)),
        ),
        (
            ("trial_softirq_s_per_gb", "s/GB"),
            each(&|one| one.trials.softirq_ns as f64 / both_ways(one)),
        ),
        (("cpu_percent_source", "%"), each(&|one| percent(&one.trials, 0))),
        (("cpu_percent_collector", "%"), each(&|one| percent(&one.trials, 1))),
        (("bytes_per_s", "B/s"), rates),
        (("cpu_s_per_gb_source", "s/GB"), each(&|one| cpu(&one.stream, 0) / one_way(one))),
        (("cpu_s_per_gb_collector", "s/GB"), each(&|one| cpu(&one.stream, 1) / one_way(one))),
        (("softirq_s_per_gb", "s/GB"), each(&|one| one.stream.softirq_ns as f64 / one_way(one))),
    ];
    let metrics = metrics.into_iter();
    let rows = metrics.map(|(metric, values)| Row::new(id, cell, metric, values, &conditions));
    let mut rows: Vec<Row> = rows.collect();
    for (side, name) in SIDES.iter().enumerate() {
        for role in ["program", "sq", "cq", "rq", "provider"] {
            let cell = Cell { variant: Some(format!("{name} {role}")), ..cell.clone() };
            let ns = |one: &Found| one.trials.used_ns[side].get(role).copied();
            let spent = found.iter().filter_map(|one| Some(ns(one)? as f64 / both_ways(one)));
            let metric = ("thread_cpu_s_per_gb", "s/GB");
            let values: Vec<f64> = spent.collect();
            if !values.is_empty() {
                rows.push(Row::new(id, &cell, metric, values, &conditions));
            }
        }
    }
    rows
}
