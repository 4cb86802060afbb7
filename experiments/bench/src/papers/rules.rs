//! Rules of honest numbers that single rows keep or break: what part of those keeps them that are kept in `docs/results`.
use super::claim::Verdict;
use super::elsewhere::Measured;
use super::scenario::{self, Scenario};
use crate::job::{CORE_SHARE_MIN, WARM_UP_OPERATIONS, WARM_UP_PART};
use crate::kept;
use crate::mechanism::Mechanism;
use crate::output::RESULTS;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A row, by its columns.
type Row = BTreeMap<String, String>;

/// Where a row was measured, but for the mechanism.
const CELL: [&str; 8] =
    ["provider", "bytes", "blocks", "streams", "workers", "variant", "x", "metric"];
/// What both sides of a ratio have alike.
const ALIKE: [&str; 5] = ["wait", "caches", "realtime", "source_core", "collector_core"];
const LOSSES_AND_RATES: [&str; 5] = [
    "lost_packets", "retransmissions", "failed_operations", "offered_bytes_per_s",
    "achieved_bytes_per_s",
];
const TIMED: [&str; 4] = ["ns", "1/s", "B/s", "s/GB"];
/// Cells of the transmission controller, in `docs/results/control`.
const CONTROLLER: [&str; 4] =
    ["admission.jsonl", "wan.jsonl", "wan-loads.jsonl", "table-one.jsonl"];
/// A load beyond the knee of all methods but ours.
const OVERLOAD: f64 = 0.87;
const REPETITIONS: f64 = 30.0;
const PROCESSES: f64 = 5.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Rule {
    /// Of rows that a claim divides: both sides waited, were placed and had their caches alike, and say so.
    Alike,
    /// Of rows that are said not to be disturbed: each polling role had its core in every batch.
    Cores,
    /// Of rows of times and rates by a clock: they were repeated, in fresh processes.
    Repeated,
    /// Of rows of the status bytes: the paper's window and a fair one stand beside them.
    Rivals,
    /// Of all rows: they have the columns for losses and rates.
    Columns,
    /// Of rows of times and rates by a clock: a warm-up was dropped that was long enough, and caches are named.
    Warm,
    /// Of rows of processor time: both roles and the machine's soft interrupts stand beside each other.
    Processors,
    /// Of the cells of the transmission controller at a load of 0.87 and above: how long events came.
    Lasting,
}

/// The rows that `docs/results` has, read once for all rules.
pub(super) struct Published {
    scenarios: Vec<(Scenario, Vec<Row>)>,
    /// Of the transmission controller, by the file that they are in.
    controller: Vec<(&'static str, Vec<kept::Row>)>,
}

impl Published {
    /// # Errors
    /// A file of rows cannot be read. One that is not there has none.
    pub(super) fn read() -> Result<Self> {
        let mut scenarios = Vec::new();
        for scenario in scenario::ours()? {
            let name = format!("papers/{}.csv", scenario.id.to_lowercase());
            let path = Path::new(RESULTS).join(name);
            if path.exists() {
                scenarios.push((scenario, read(&path)?));
            }
        }
        let folder = Path::new(RESULTS).join("control");
        let there = CONTROLLER.into_iter().filter(|name| folder.join(name).exists());
        let rows = there.map(|name| Ok((name, kept::read(&folder.join(name))?)));
        Ok(Self { scenarios, controller: rows.collect::<Result<_>>()? })
    }
}

/// How many rows keep a rule, of which it is to be kept by so many, and how many break it in each experiment.
#[derive(Debug, Default)]
struct Count {
    kept: usize,
    of: usize,
    broken: BTreeMap<String, usize>,
}

impl Count {
    fn add(&mut self, experiment: &str, keeps: bool) {
        self.of += 1;
        self.kept += usize::from(keeps);
        if !keeps {
            *self.broken.entry(experiment.to_owned()).or_default() += 1;
        }
    }

    /// Says how many keep it, and where those are that do not.
    fn place(&self) -> String {
        let broken = self.broken.iter().map(|(experiment, rows)| format!("{experiment} {rows}"));
        let broken = broken.collect::<Vec<_>>().join(", ");
        let others = if broken.is_empty() { broken } else { format!("; not: {broken}") };
        format!("{} of {} rows{others}", self.kept, self.of)
    }

    fn verdict(&self) -> Verdict {
        let held = self.broken.is_empty();
        Verdict {
            measured: Some(self.kept as f64 / self.of as f64),
            held: Some(held),
            unit: Some("1".to_owned()),
            why_not: (!held).then(|| self.place()),
            ..Verdict::default()
        }
    }
}

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).map_or("", String::as_str)
}

/// 0 where there is none.
fn number(row: &Row, column: &str) -> f64 {
    text(row, column).parse().unwrap_or_default()
}

fn is_same(one: &Row, other: &Row, columns: &[&str]) -> bool {
    columns.iter().all(|column| text(one, column) == text(other, column))
}

impl Rule {
    /// Says what must be kept, by which rows.
    pub(super) fn must(self) -> &'static str {
        match self {
            Self::Alike => "each row that a claim divides",
            Self::Cores => "each row that is not said to be disturbed, each batch",
            Self::Repeated => "each row of times and rates, 30 times in 5 processes",
            Self::Rivals => "each row of the status bytes",
            Self::Columns => "each row",
            Self::Warm => "each row of times and rates, a tenth and 1,000 operations",
            Self::Processors => "each row of processor time",
            Self::Lasting => "each cell at a load of 0.87 and above, 600 s or 120 s",
        }
    }

    /// Returns what part of the rows keeps it; nothing where no rows are kept.
    pub(super) fn measured(self, published: &Published) -> Option<Measured> {
        let mut count = Count::default();
        for (scenario, rows) in &published.scenarios {
            self.count(scenario, rows, &mut count);
        }
        if self == Self::Lasting {
            for (name, rows) in &published.controller {
                count_lasting(name, rows, &mut count);
            }
        }
        let place = count.place();
        let (must, page) = (self.must().to_owned(), "papers.md".to_owned());
        (count.of > 0).then(|| Measured { must, place, page, verdict: count.verdict() })
    }

    fn count(self, scenario: &Scenario, rows: &[Row], count: &mut Count) {
        let id = &scenario.id;
        match self {
            Self::Alike => {
                for (top, below) in divided(scenario, rows) {
                    let says = !text(top, "wait").is_empty() && !text(top, "caches").is_empty();
                    count.add(id, says && is_same(top, below, &ALIKE));
                }
            }
            Self::Cores => {
                for row in rows.iter().filter(|row| text(row, "disturbed") == "false") {
                    count.add(id, number(row, "core_share_min") >= CORE_SHARE_MIN);
                }
            }
            Self::Repeated => {
                for row in rows.iter().filter(|row| is_timed(row)) {
                    let (samples, processes) = (number(row, "samples"), number(row, "restarts"));
                    count.add(id, samples >= REPETITIONS && processes >= PROCESSES);
                }
            }
            Self::Rivals => {
                let is_ours = |row: &&Row| {
                    text(row, "x").is_empty() && text(row, "mechanism").starts_with("sb")
                };
                let ours = rows.iter().filter(is_ours);
                for row in ours {
                    let beside = |name: &str| {
                        let of = |other: &&Row| text(other, "mechanism").starts_with(name);
                        rows.iter().filter(of).any(|other| is_same(row, other, &CELL))
                    };
                    count.add(
                        id,
                        beside(Mechanism::SwPaper.name()) && beside(Mechanism::SwFair.name()),
                    );
                }
            }
            Self::Warm => {
                for row in rows.iter().filter(|row| is_timed(row)) {
                    let operations = number(row, "dropped_operations");
                    let is_long = operations >= WARM_UP_OPERATIONS as f64
                        && number(row, "dropped_part") * WARM_UP_PART as f64 >= 1.0;
                    count.add(id, is_long && !text(row, "caches").is_empty());
                }
            }
            Self::Processors => {
                let is_cpu = |row: &&Row| {
                    text(row, "metric").starts_with("cpu_") && text(row, "provider") != "sim"
                };
                let mut cell = CELL.to_vec();
                cell.retain(|column| *column != "metric");
                cell.push("mechanism");
                for row in rows.iter().filter(is_cpu) {
                    let has = |part: &str| {
                        let of = |other: &&Row| text(other, "metric").contains(part);
                        rows.iter().filter(of).any(|other| is_same(row, other, &cell))
                    };
                    let [source, collector, softirq] =
                        ["_source", "_collector", "softirq"].map(has);
                    count.add(id, source && collector && softirq);
                }
            }
            Self::Lasting => {}
            Self::Columns => {
                for row in rows {
                    let has_all = LOSSES_AND_RATES.iter().all(|column| row.contains_key(*column));
                    count.add(id, has_all);
                }
            }
        }
    }
}

/// A time or rate by a clock, and no point of a distribution.
fn is_timed(row: &Row) -> bool {
    let by_clock = text(row, "provider") != "sim" && text(row, "x").is_empty();
    by_clock && TIMED.contains(&text(row, "unit"))
}

/// Simulated cells last 600 s, those between namespaces 120 s.
fn count_lasting(name: &str, rows: &[kept::Row], count: &mut Count) {
    for row in rows.iter().filter(|row| row.what() == "cell") {
        let number = |field| row.get(field).as_f64();
        let (Some(load), Some(seconds)) = (number("load"), number("seconds")) else { continue };
        if load >= OVERLOAD {
            let least = if row.get("place") == "sim" { 600.0 } else { 120.0 };
            count.add(&format!("control/{name}"), seconds >= least);
        }
    }
}

/// Rows that a claim divides by another one's.
fn divided<'r>(scenario: &Scenario, rows: &'r [Row]) -> Vec<(&'r Row, &'r Row)> {
    let mut all = Vec::new();
    for claim in &scenario.claims {
        let Some(over) = claim.over else { continue };
        let of = |mechanism: Mechanism| {
            let is_of = move |row: &&Row| text(row, "mechanism") == mechanism.name();
            rows.iter().filter(is_of).filter(|row| text(row, "metric") == claim.metric)
        };
        for top in of(claim.mechanism) {
            let below = of(over).find(|below| is_same(top, below, &CELL));
            all.extend(below.map(|below| (top, below)));
        }
    }
    all
}

fn read(path: &Path) -> Result<Vec<Row>> {
    let rows = csv::Reader::from_path(path).map(csv::Reader::into_deserialize);
    let rows = rows.and_then(Iterator::collect);
    rows.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lines: &str) -> Vec<Row> {
        csv::Reader::from_reader(lines.as_bytes()).into_deserialize().map(Result::unwrap).collect()
    }

    fn count(rule: Rule, lines: &str) -> (usize, usize) {
        let all = scenario::ours().unwrap();
        let scenario = all.iter().find(|scenario| scenario.id == "E1.13").unwrap();
        let mut count = Count::default();
        rule.count(scenario, &rows(lines), &mut count);
        let broken = count.broken.get("E1.13").copied().unwrap_or_default();
        assert_eq!(count.kept + broken, count.of);
        (count.kept, count.of)
    }

    #[test]
    fn h1_a_side_that_waits_otherwise_is_found() {
        let head = "provider,mechanism,metric,wait,caches\n";
        let alike = "shm,sb,blocks_per_s,spin,warm\nshm,sw-fair,blocks_per_s,spin,warm\n";
        let (kept, of) = count(Rule::Alike, &format!("{head}{alike}"));
        assert!(kept > 0 && kept == of, "{kept} of {of}");
        let other = alike.replacen("spin", "asleep", 1);
        assert_eq!(count(Rule::Alike, &format!("{head}{other}")), (0, of));
        assert_eq!(count(Rule::Alike, &format!("{head}{}", alike.replace("spin", ""))), (0, of));
    }

    #[test]
    fn h2_a_row_without_its_cores_is_found_unless_it_says_so() {
        let lines = "disturbed,core_share_min\nfalse,0.98\nfalse,0.96\ntrue,0.5\n,\nfalse,\n";
        assert_eq!(count(Rule::Cores, lines), (1, 3));
    }

    #[test]
    fn h5_times_that_were_not_repeated_are_found() {
        let lines = "provider,unit,x,samples,restarts\nshm,ns,,30,5\nshm,1/s,,30,1\nroce,ns,,15,5\n\
                     sim,ns,,1,1\nshm,1,,1,1\nshm,B/s,3,1,1\n";
        assert_eq!(count(Rule::Repeated, lines), (1, 3));
    }

    #[test]
    fn h4_a_warm_up_that_is_too_short_is_found() {
        let lines = "provider,unit,x,dropped_operations,dropped_part,caches\nshm,ns,,1000,0.1,warm\n\
                     shm,ns,,1000,0.05,warm\nshm,ns,,500,0.5,warm\nroce,1/s,,5000,0.2,\n\
                     roce,ns,,,,warm\nsim,ns,,,,\n";
        assert_eq!(count(Rule::Warm, lines), (1, 5));
    }

    #[test]
    fn h6_processor_time_without_soft_interrupts_is_found() {
        let lines = "provider,mechanism,bytes,metric\nroce,sb,64,cpu_percent_source\n\
                     roce,sb,64,cpu_percent_collector\nroce,sb,64,softirq_s_per_gb\n\
                     roce,sw-fair,64,cpu_percent_source\nroce,sw-fair,64,cpu_percent_collector\n";
        assert_eq!(count(Rule::Processors, lines), (2, 4));
    }

    #[test]
    fn h11_an_overload_that_is_too_short_is_found() {
        let cell = |place: &str, load: f64, seconds: u64| {
            let row = serde_json::json!({"what": "cell", "place": place, "load": load, "seconds": seconds});
            serde_json::from_value::<kept::Row>(row).unwrap()
        };
        let rows = [
            cell("sim", 0.9, 600),
            cell("sim", 0.9, 4),
            cell("netns", 0.87, 120),
            cell("netns", 0.87, 30),
            cell("netns", 0.5, 30),
        ];
        let mut count = Count::default();
        count_lasting("wan.jsonl", &rows, &mut count);
        assert_eq!((count.kept, count.of), (2, 4));
        assert_eq!(count.place(), "2 of 4 rows; not: control/wan.jsonl 2");
    }

    #[test]
    fn h7_h9_a_row_without_rivals_and_one_without_columns_are_found() {
        let lines =
            "mechanism,bytes\nsb,64\nsw-paper,64\nsw-fair-tail,64\nsb-paper,4096\nsw-fair,4096\n";
        assert_eq!(count(Rule::Rivals, lines), (1, 2));
        assert_eq!(count(Rule::Columns, lines), (0, 5));
    }
}
