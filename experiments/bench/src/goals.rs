//! What Catchment set out to reach, written down before the first run.
use crate::goal::Limit::{AtLeast, AtMost};
use crate::goal::{self, Limit};
use crate::mechanism::Mechanism;
use crate::row::{Row, RunMedians};
use crate::stats::Spread;
use serde::Serialize;

/// The cell that a goal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, derive_more::Display)]
#[display(", {bytes} bytes, {blocks} blocks")]
pub(crate) struct Place {
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
}

pub(crate) type Goal = goal::Goal<Place>;

const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 65_536;
const STATUS_READ_CELL: (usize, usize) = (256, 3);
/// A camera picture of 640 x 480 x 3.
const PICTURE_BYTES: usize = 921_600;

pub(crate) fn judge(rows: &[Row]) -> Vec<Goal> {
    let copies = rows.iter().filter(|r| r.what == Mechanism::OursCopy);
    let in_place =
        rows.iter().filter(|r| r.what == Mechanism::OursInPlace && r.bytes == PICTURE_BYTES);
    let prefetched = rows
        .iter()
        .filter(|r| r.what == Mechanism::StatusReadPrefetched)
        .filter(|r| (r.bytes, r.blocks) == STATUS_READ_CELL);
    copies
        .flat_map(|row| judge_copy(rows, row))
        .chain(in_place.flat_map(|row| judge_in_place(rows, row)))
        .chain(prefetched.flat_map(|row| judge_prefetch(rows, row)))
        .collect()
}

fn judge_copy(rows: &[Row], ours: &Row) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(memcpy) =
        beside(rows, ours, Mechanism::Memcpy).filter(|_| ours.bytes >= LARGE_BYTES)
    {
        let name = "throughput with copy / memcpy";
        goals.push(goal(name, [ours, memcpy], speed_ratio(ours, memcpy), AtLeast(0.9)));
    }
    if let Some(over) = ours.latency_over_cache_line.filter(|_| ours.bytes == SMALL_BYTES) {
        let name = "latency with copy / cache-line hand-over";
        goals.push(goal(name, [ours, ours], over, AtMost(1.3)));
    }
    goals
}

fn judge_in_place(rows: &[Row], ours: &Row) -> Vec<Goal> {
    // Against the better one of the two ways to wait for room.
    let peers =
        [Mechanism::Iceoryx2, Mechanism::Iceoryx2Credit].map(|what| beside(rows, ours, what));
    let peers = peers.into_iter().flatten();
    let fastest =
        peers.clone().min_by(|a, b| speed_ratio(ours, a).total_cmp(&speed_ratio(ours, b)));
    let quickest = peers.max_by(|a, b| latency_ratio(ours, a).total_cmp(&latency_ratio(ours, b)));
    let mut goals = Vec::new();
    if let Some(peer) = fastest {
        let name = "throughput in place / iceoryx2";
        goals.push(goal(name, [ours, peer], speed_ratio(ours, peer), AtLeast(1.0)));
    }
    if let Some(peer) = quickest {
        let name = "latency in place / iceoryx2";
        goals.push(goal(name, [ours, peer], latency_ratio(ours, peer), AtMost(1.2)));
    }
    goals
}

fn judge_prefetch(rows: &[Row], ours: &Row) -> Vec<Goal> {
    let others = [
        (Mechanism::Paper, "the paper's mechanism"),
        (Mechanism::StatusReadWhenEmpty, "read when none is left"),
    ];
    let judge = |(what, name)| {
        let other = beside(rows, ours, what)?;
        let name = format!("blocks per second, status read ahead / {name}");
        let ratio = speed_ratio(ours, other);
        Some(goal(&name, [ours, other], ratio, AtLeast(1.5)))
    };
    others.into_iter().filter_map(judge).collect()
}

/// Returns how many times as many blocks per second: compared run by run, since the two ran one
/// after the other then, and the machine may have changed between the runs.
fn speed_ratio(ours: &Row, other: &Row) -> f64 {
    median_of_ratios(ours, other, |run| run.blocks_per_s)
}

fn latency_ratio(ours: &Row, other: &Row) -> f64 {
    median_of_ratios(ours, other, |run| run.latency_ns)
}

fn median_of_ratios(ours: &Row, other: &Row, value: fn(&RunMedians) -> f64) -> f64 {
    let pairs = ours.per_run.iter().zip(&other.per_run);
    let ratios: Vec<f64> = pairs.map(|(a, b)| value(a) / value(b)).collect();
    Spread::of(&ratios).p50
}

fn beside<'a>(rows: &'a [Row], row: &Row, what: Mechanism) -> Option<&'a Row> {
    rows.iter().find(|r| r.what == what && (r.bytes, r.blocks) == (row.bytes, row.blocks))
}

fn goal(name: &str, rows: [&Row; 2], ratio: f64, limit: Limit) -> Goal {
    let place = Place { bytes: rows[0].bytes, blocks: rows[0].blocks };
    let mut goal = Goal::new(name, place, ratio, limit);
    goal.disturbed = Some(rows.iter().any(|row| row.disturbed));
    goal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Options;
    use crate::job::{Outcome, PingPong, Stream};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn row(what: Mechanism, bytes: usize, wall_ns: u64, latency_ns: f64) -> Row {
        let options = Line::try_parse_from(["transfer"]).unwrap().options;
        let outcome = Outcome {
            streams: vec![Stream {
                count: 1000,
                wall_ns,
                source_cpu_ns: wall_ns,
                collector_cpu_ns: wall_ns,
                core_share: 1.0,
                status_reads: None,
            }],
            ping_pongs: vec![PingPong {
                count: 1000,
                p50_ns: latency_ns,
                p99_ns: latency_ns,
                middle_ns: latency_ns,
                floor_ns: 200.0,
                core_share: 1.0,
            }],
            ..Outcome::default()
        };
        Row::new(&options.job(what, bytes, 3), &[outcome])
    }

    #[test]
    fn a_copy_is_judged_by_memcpy_when_large_and_by_the_cache_line_when_small() {
        let large = [
            row(Mechanism::OursCopy, 65_536, 1_000_000, 900.0),
            row(Mechanism::Memcpy, 65_536, 850_000, 500.0),
        ];
        let goals = judge(&large);
        assert_eq!(goals.len(), 1);
        assert_eq!((goals[0].ratio, goals[0].held), (0.85, false));
        let small = row(Mechanism::OursCopy, 64, 1000, 260.0);
        let goals = judge(&[small, row(Mechanism::Memcpy, 64, 10, 1.0)]);
        assert_eq!(goals.len(), 1);
        assert_eq!((goals[0].ratio, goals[0].held), (1.3, true));
    }

    #[test]
    fn reading_ahead_is_judged_by_the_paper_and_by_reading_when_empty() {
        let rows = [
            row(Mechanism::StatusReadPrefetched, 256, 1000, 1.0),
            row(Mechanism::Paper, 256, 1600, 1.0),
            row(Mechanism::StatusReadWhenEmpty, 256, 1400, 1.0),
            row(Mechanism::StatusReadPrefetched, 64, 1000, 1.0),
            row(Mechanism::Paper, 64, 1000, 1.0),
        ];
        let goals = judge(&rows);
        let seen: Vec<_> = goals.iter().map(|g| (g.place.bytes, g.ratio, g.held)).collect();
        assert_eq!(seen, [(256, 1.6, true), (256, 1.4, false)]);
    }

    #[test]
    fn in_place_is_judged_by_the_better_iceoryx2() {
        let rows = [
            row(Mechanism::OursInPlace, PICTURE_BYTES, 1_000_000, 1300.0),
            row(Mechanism::Iceoryx2, PICTURE_BYTES, 1_500_000, 1000.0),
            row(Mechanism::Iceoryx2Credit, PICTURE_BYTES, 900_000, 1200.0),
        ];
        let goals = judge(&rows);
        assert_eq!(goals.len(), 2);
        assert!(!goals[0].held && !goals[1].held, "{goals:?}");
        assert_eq!((goals[0].ratio, goals[1].ratio), (0.9, 1.3));
    }
}
