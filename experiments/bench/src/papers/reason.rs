//! Why a claim was not held, as the rows of the run say it: the rows that decided, what else was
//! measured in their cells, and what disturbed them. Nothing here knows a mechanism.
use super::claim::{Claim, Point, Take, number};
use super::record::{Axis, Row};
use std::fmt::Write as _;

/// What is told of a cell beside the metric that was claimed, where it was measured.
const BESIDE: [&str; 12] = [
    "misses_per_op", "pipe_busy_fraction", "agent_busy_fraction", "status_reads_per_block",
    "messages_per_block", "interactions_per_block", "latency_ns", "sync_ns", "one_way_ns",
    "core_share", "cpu_percent_source", "cpu_percent_collector",
];
/// What a model without any protocol expects, for the same chance.
const EXPECTED: [(&str, &str); 1] = [("blocks_per_s", "expected_blocks_per_s")];

/// Returns what the rows of this run say of a claim that was not held.
pub(super) fn reason(claim: &Claim, points: &[Point<'_>], rows: &[Row]) -> String {
    let decisive = decisive(claim, points);
    let mut text = String::new();
    for (place, point) in decisive.iter().enumerate() {
        let comma = if place == 0 { "" } else { "; " };
        let _ = write!(text, "{comma}{}", of_point(claim, point));
    }
    let judged_alone = matches!(claim.take, Take::Least | Take::Most | Take::Furthest);
    if judged_alone && points.len() > 1 {
        let missed = points.iter().filter(|point| !claim.holds(point.y)).count();
        let _ = write!(text, ". {missed} of {} cells miss it", points.len());
    }
    if let Some(point) = decisive.last() {
        text.push_str(&expected(point, rows));
        text.push_str(&beside(point, rows));
        text.push_str(&disturbance(point));
    }
    text + "."
}

/// The points that the number was taken from.
fn decisive<'p, 'r>(claim: &Claim, points: &'p [Point<'r>]) -> Vec<&'p Point<'r>> {
    let by = |of: &dyn Fn(&Point<'_>) -> f64| {
        points.iter().max_by(|a, b| of(a).total_cmp(&of(b))).into_iter().collect()
    };
    let step = |of: &dyn Fn(f64) -> f64| -> Vec<&Point<'_>> {
        let steps = points.windows(2);
        let most = steps.max_by(|a, b| of(a[1].y / a[0].y).total_cmp(&of(b[1].y / b[0].y)));
        most.map_or(Vec::new(), |two| two.iter().collect())
    };
    match claim.take {
        Take::Only => points.iter().collect(),
        Take::Least => by(&|point| -point.y),
        Take::Most => by(&|point| point.y),
        Take::Furthest => by(&|point| point.y.ln().abs()),
        Take::LargestStep => step(&|step| step),
        Take::SmallestStep => step(&|step| -step),
        Take::Deviation | Take::Spread | Take::Median => {
            let mut ends: Vec<&Point<'_>> = by(&|point| -point.y);
            ends.extend(by(&|point| point.y));
            ends
        }
        Take::Crossing => points.first().into_iter().chain(points.last()).collect(),
    }
}

fn of_point(claim: &Claim, point: &Point<'_>) -> String {
    let mut text =
        format!("at {}, {}: {}", place(claim, point.top), name(point.top), value(point.top));
    if let Some(below) = point.below {
        let word = if claim.minus.is_some() { "less" } else { "by" };
        let _ = write!(text, ", {word} {}: {}, is {}", name(below), value(below), number(point.y));
    }
    text
}

/// The cell, and where on the claim's axis.
fn place(claim: &Claim, row: &Row) -> String {
    let cell = &row.cell;
    let mut words = format!("{} B, {} blocks", cell.bytes, cell.blocks);
    if let Some(variant) = &cell.variant {
        let _ = write!(words, ", {variant}");
    }
    if let Some(workers) = cell.workers {
        let _ = write!(words, ", {workers} workers");
    }
    if let (Axis::X, Some(x)) = (claim.along, cell.x) {
        let _ = write!(words, ", {} {}", number(x), cell.x_unit.unwrap_or_default());
    }
    words
}

fn name(row: &Row) -> String {
    format!("{} {}", row.cell.mechanism, row.metric)
}

fn value(row: &Row) -> String {
    let summary = &row.summary;
    let unit = if row.unit == "1" { "" } else { row.unit };
    let interval = if summary.ci_low == summary.ci_high {
        String::new()
    } else {
        format!(" ({} to {})", number(summary.ci_low), number(summary.ci_high))
    };
    format!("{}{interval} {unit}", number(summary.median)).trim_end().to_owned()
}

/// The row of another metric in the cell of this one.
fn other<'a>(row: &Row, metric: &str, rows: &'a [Row]) -> Option<&'a Row> {
    rows.iter().find(|one| one.metric == metric && one.cell == row.cell)
}

fn expected(point: &Point<'_>, rows: &[Row]) -> String {
    let model = EXPECTED.iter().find(|(metric, _)| *metric == point.top.metric);
    let both = model.zip(point.below).and_then(|((_, model), below)| {
        let top = other(point.top, model, rows)?;
        Some(top.summary.median / other(below, model, rows)?.summary.median)
    });
    both.map_or(String::new(), |ratio| {
        format!(". A model without any protocol expects {} for the same seeds", number(ratio))
    })
}

fn beside(point: &Point<'_>, rows: &[Row]) -> String {
    let Some(below) = point.below else { return String::new() };
    let told = BESIDE.iter().filter(|metric| **metric != point.top.metric).filter_map(|metric| {
        let both = [point.top, below].map(|row| other(row, metric, rows));
        both.iter().any(Option::is_some).then(|| {
            let [top, below] = both.map(|row| row.map_or("-".to_owned(), value));
            format!("{metric} {top} beside {below}")
        })
    });
    let told: Vec<String> = told.take(4).collect();
    if told.is_empty() {
        String::new()
    } else {
        format!(". In the same cells: {}", told.join(", "))
    }
}

/// What of the run itself may have made the number.
fn disturbance(point: &Point<'_>) -> String {
    let rows = || [Some(point.top), point.below].into_iter().flatten();
    let mut words = Vec::new();
    if rows().any(|row| row.conditions.disturbed == Some(true)) {
        words.push("other programs disturbed it".to_owned());
    }
    let repeated: usize = rows().map(|row| row.conditions.repeated).sum();
    if repeated > 0 {
        words.push(format!("{repeated} batches were repeated"));
    }
    let sum = |of: fn(&Row) -> Option<u64>| rows().filter_map(of).sum::<u64>();
    let (lost, again) =
        (sum(|row| row.conditions.lost_packets), sum(|row| row.conditions.retransmissions));
    if lost + again > 0 {
        words.push(format!("{lost} packets were lost and {again} sent again"));
    }
    if words.is_empty() { String::new() } else { format!(". {}", words.join(", ")) }
}
