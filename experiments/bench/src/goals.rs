//! What Catchment set out to reach, written down before the first run.
use crate::goal::Limit::{AtLeast, AtMost};
use crate::goal::{self, Limit, Unmeasured};
use crate::mechanism::Mechanism;
use crate::row::{Row, RunMedians};
use crate::stats::Spread;
use serde::Serialize;
use std::fmt;

/// What a goal is about: the provider, the cell, and the rival or load where there are several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    pub(crate) provider: &'static str,
    pub(crate) bytes: Option<usize>,
    pub(crate) blocks: Option<usize>,
    pub(crate) rival: Option<&'static str>,
    pub(crate) case: Option<String>,
}

impl Place {
    pub(crate) fn of(provider: &'static str) -> Self {
        Self { provider, bytes: None, blocks: None, rival: None, case: None }
    }

    /// Returns a cell; 0 bytes where their number does not matter.
    pub(crate) fn at(provider: &'static str, bytes: usize, blocks: usize) -> Self {
        Self { bytes: (bytes > 0).then_some(bytes), blocks: Some(blocks), ..Self::of(provider) }
    }

    pub(crate) fn words(&self) -> String {
        let number = |number: Option<usize>, of: &str| number.map(|n| format!("{n} {of}"));
        let words = [
            Some(self.provider.to_owned()),
            number(self.bytes, "bytes"),
            number(self.blocks, "blocks"),
            self.rival.map(|rival| format!("beside {rival}")),
            self.case.clone(),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", {}", self.words())
    }
}

pub(crate) type Goal = goal::Goal<Place>;

const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 65_536;
const STATUS_READ_CELL: (usize, usize) = (256, 3);
/// A camera picture of 640 x 480 x 3.
const PICTURE_BYTES: usize = 921_600;
/// Up to here the product is to be ahead in every cell.
const AHEAD_BYTES: usize = 16_384;
const MEMCPY_CELL: (usize, usize) = (1 << 20, 3);

/// The clauses of what the transfer is to reach; each has a goal at least, measured or not.
pub(crate) const WRITES: &str = "WRITEs a block in lock-step";
pub(crate) const READS: &str = "READs a block in lock-step, by 1/(N-1) + 1 %";
pub(crate) const STALL: &str = "stall beside the oracle, a part of the time";
const WINDOW_COPY: &str = "blocks per second, copied / the fastest fair window";
const WINDOW_IN_PLACE: &str = "blocks per second, in place / the fastest fair window";
const LARGER_COPY: &str = "copied / the fastest fair window, median of the cells above 16 KiB";
const LARGER_IN_PLACE: &str =
    "in place / the fastest fair window, median of the cells above 16 KiB";
pub(crate) const OUT_OF_ORDER: &str =
    "blocks per second released out of order / the fastest fair window";
const SMALL_IN_PLACE: &str = "latency of 64 B in place / (1.3 hand-overs of a cache line + 60 ns)";
const SMALL_COPY: &str = "latency of 64 B copied / (1.3 hand-overs of a cache line + 120 ns)";
const MEMCPY: &str = "throughput of 1 MiB copied at 3 blocks / memcpy";
const ICEORYX: &str = "throughput in place / iceoryx2";
pub(crate) const RECEIVER_CPU: &str = "receiver's processor time over roce / TCP to as much memory";
pub(crate) const SMALL_WRITE: &str =
    "latency of a 64-byte WRITE over roce / bare UDP with the same waiting";
pub(crate) const LONG_LINKS: &str =
    "goodput of a long link (1 Gbit/s, 10 to 100 ms each way, 0 and 1 % lost) / the link";

const CLAUSES: [&str; 15] = [
    WRITES, READS, STALL, WINDOW_COPY, WINDOW_IN_PLACE, LARGER_COPY, LARGER_IN_PLACE, OUT_OF_ORDER,
    SMALL_IN_PLACE, SMALL_COPY, MEMCPY, ICEORYX, RECEIVER_CPU, SMALL_WRITE, LONG_LINKS,
];

/// Returns the clauses that no goal of a whole run is about.
pub(crate) fn unmeasured(goals: &[Goal], is_whole: bool) -> Vec<Unmeasured> {
    let is_measured = |clause: &str| goals.iter().any(|goal| goal.goal.starts_with(clause));
    let missing = CLAUSES.iter().filter(|clause| is_whole && !is_measured(clause));
    missing.map(|clause| Unmeasured::new(clause, "not measured")).collect()
}

pub(crate) fn judge(rows: &[Row]) -> Vec<Goal> {
    let of = |what: Mechanism| rows.iter().filter(move |row| row.what == what);
    let pictures = of(Mechanism::OursInPlace).filter(|row| row.bytes == PICTURE_BYTES);
    let prefetched = of(Mechanism::StatusReadPrefetched)
        .filter(|row| (row.bytes, row.blocks) == STATUS_READ_CELL);
    of(Mechanism::OursCopy)
        .flat_map(|row| judge_copy(rows, row))
        .chain(of(Mechanism::OursInPlace).filter_map(|row| judge_small(row, SMALL_IN_PLACE, 60.0)))
        .chain(pictures.flat_map(|row| judge_in_place(rows, row)))
        .chain(prefetched.flat_map(|row| judge_prefetch(rows, row)))
        .chain(judge_windows(rows))
        .collect()
}

/// Every cell beside its fastest fair window, and the larger cells together.
fn judge_windows(rows: &[Row]) -> Vec<Goal> {
    const COPY: [Mechanism; 2] = [Mechanism::SwFair, Mechanism::SwFairTail];
    const IN_PLACE: [Mechanism; 1] = [Mechanism::SwFairTailInPlace];
    let ways: [(Mechanism, &[Mechanism], _, _); 2] = [
        (Mechanism::Sb, &COPY, WINDOW_COPY, LARGER_COPY),
        (Mechanism::SbInPlace, &IN_PLACE, WINDOW_IN_PLACE, LARGER_IN_PLACE),
    ];
    let mut all = Vec::new();
    for (what, rivals, name, median_name) in ways {
        for provider in ["shm", "roce"] {
            let ours = rows.iter().filter(|row| row.what == what && row.provider == provider);
            let cells: Vec<Goal> =
                ours.filter_map(|row| judge_window(rows, row, rivals, name)).collect();
            let is_larger = |goal: &&Goal| goal.place.bytes.is_some_and(|n| n > AHEAD_BYTES);
            let larger: Vec<f64> = cells.iter().filter(is_larger).map(|goal| goal.ratio).collect();
            all.extend(cells);
            if !larger.is_empty() {
                let median = Spread::of(&larger).p50;
                all.push(Goal::new(median_name, Place::of(provider), median, AtLeast(1.0)));
            }
        }
    }
    all
}

/// Beside the rival that was fastest in the first pairs of processes, by the ratios of the others:
/// whoever chooses and measures in one run takes the luckiest rival of that run.
fn judge_window(rows: &[Row], ours: &Row, rivals: &[Mechanism], name: &str) -> Option<Goal> {
    let rivals = rivals.iter().filter_map(|what| {
        let same = |row: &&Row| row.what == *what && row.provider == ours.provider;
        let row = rows.iter().filter(same).find(|row| is_same_cell(row, ours))?;
        Some((row.per_run.first()?.blocks_per_s, row))
    });
    let (_, rival) = rivals.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let judged = ours.per_run.iter().zip(&rival.per_run).skip(1);
    let ratios: Vec<f64> = judged.map(|(a, b)| a.blocks_per_s / b.blocks_per_s).collect();
    if ratios.is_empty() {
        return None;
    }
    let least = if ours.bytes <= AHEAD_BYTES { 1.0 } else { 0.97 };
    let mut goal = goal(name, [ours, rival], Spread::of(&ratios).p50, AtLeast(least));
    goal.place.rival = Some(rival.what.name());
    Some(goal)
}

/// By the hand-over directly before each batch, and the time that is allowed beside it.
fn judge_small(ours: &Row, name: &str, beside_ns: f64) -> Option<Goal> {
    if ours.bytes != SMALL_BYTES || ours.over_floor.is_empty() {
        return None;
    }
    let batches = ours.over_floor.iter();
    let ratios: Vec<f64> = batches.map(|(ns, floor)| ns / (1.3 * floor + beside_ns)).collect();
    Some(goal(name, [ours, ours], Spread::of(&ratios).p50, AtMost(1.0)))
}

fn judge_copy(rows: &[Row], ours: &Row) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(memcpy) =
        beside(rows, ours, Mechanism::Memcpy).filter(|_| ours.bytes >= LARGE_BYTES)
    {
        let name = "throughput with copy / memcpy";
        let ratio = speed_ratio(ours, memcpy);
        goals.push(goal(name, [ours, memcpy], ratio, AtLeast(0.9)));
        if (ours.bytes, ours.blocks) == MEMCPY_CELL {
            goals.push(goal(MEMCPY, [ours, memcpy], ratio, AtLeast(0.95)));
        }
    }
    if let Some(over) = ours.latency_over_cache_line.filter(|_| ours.bytes == SMALL_BYTES) {
        let name = "latency with copy / cache-line hand-over";
        goals.push(goal(name, [ours, ours], over, AtMost(1.3)));
    }
    goals.extend(judge_small(ours, SMALL_COPY, 120.0));
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
        goals.push(goal(ICEORYX, [ours, peer], speed_ratio(ours, peer), AtLeast(1.0)));
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
    rows.iter().find(|r| r.what == what && is_same_cell(r, row))
}

fn is_same_cell(one: &Row, other: &Row) -> bool {
    (one.bytes, one.blocks) == (other.bytes, other.blocks)
}

fn goal(name: &str, rows: [&Row; 2], ratio: f64, limit: Limit) -> Goal {
    let place = Place::at(rows[0].provider, rows[0].bytes, rows[0].blocks);
    let mut goal = Goal::new(name, place, ratio, limit);
    let unknown = rows.iter().any(|row| row.disturbed.is_none());
    let disturbed = rows.iter().any(|row| row.disturbed == Some(true));
    goal.disturbed = (disturbed || !unknown).then_some(disturbed);
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
        // By the hand-over alone, and with 120 ns beside 1.3 of it.
        let seen: Vec<_> = goals.iter().map(|g| (g.ratio, g.held)).collect();
        assert_eq!(seen, [(1.3, true), (0.684, true)]);
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
        let seen: Vec<_> =
            goals.iter().map(|g| (g.place.bytes.unwrap(), g.ratio, g.held)).collect();
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

    fn runs(what: Mechanism, speeds: &[f64]) -> Row {
        let mut row = row(what, 4096, 1000, 1.0);
        let run = |speed: &f64| RunMedians { blocks_per_s: *speed, latency_ns: 1.0 };
        row.per_run = speeds.iter().map(run).collect();
        row
    }

    /// The tail is faster in the runs that judge, and was not chosen: it is not the rival.
    #[test]
    fn a_rival_is_chosen_in_other_processes_than_it_is_measured_in() {
        let rows = [
            runs(Mechanism::Sb, &[900.0, 100.0, 120.0, 110.0]),
            runs(Mechanism::SwFair, &[101.0, 100.0, 100.0, 100.0]),
            runs(Mechanism::SwFairTail, &[100.0, 200.0, 200.0, 200.0]),
        ];
        let goals = judge(&rows);
        assert_eq!((goals.len(), goals[0].ratio, goals[0].held), (1, 1.1, true));
        assert_eq!(goals[0].place.rival, Some("sw-fair"));
        // Who chooses has nothing to judge by.
        let once = [runs(Mechanism::Sb, &[1.0]), runs(Mechanism::SwFair, &[1.0])];
        assert!(judge(&once).is_empty());
    }

    #[test]
    fn every_clause_has_a_goal_measured_or_not() {
        let measured =
            judge(&[runs(Mechanism::Sb, &[1.0, 1.0]), runs(Mechanism::SwFair, &[1.0; 2])]);
        let missing = unmeasured(&measured, true);
        assert_eq!(missing.len(), CLAUSES.len() - 1);
        assert!(missing.iter().all(|goal| goal.why_not() == "not measured"));
        assert!(unmeasured(&measured, false).is_empty());
    }
}
