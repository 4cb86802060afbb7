//! `soak duplex`: clients of a duplex server that come, go and are killed, for hours in one or many runs.
//!
//! The test `s3_16` of `experiments/duplex` does it, and appends a row a minute to a file. A run that was
//! stopped counts as far as its rows go, and the next one goes on from there. Memory is judged over all
//! rows: the slope of one straight line for each run, the same slope for all, since each run is a new
//! process that begins with memory of its own.
use crate::repo::Repo;
use crate::run::{self, Show};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run of `soak duplex`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The provider: shm or roce
    #[arg(long, default_value = "shm")]
    provider: String,
    /// Hours that all runs together shall last
    #[arg(long, default_value_t = 8.0)]
    hours: f64,
    /// The rows of all runs; if left out, duplex-PROVIDER.csv in docs/results/soak
    #[arg(long)]
    rows: Option<PathBuf>,
    /// Say what the rows say, and run nothing
    #[arg(long)]
    report: bool,
}

/// What the test does in a second of `CATCHMENT_TEST_SCALE` 1.
const SECONDS_AT_SCALE_1: f64 = 3.0;
/// MiB an hour by which the server may grow at most.
const SLOPE_MAX: f64 = 1.0;
/// Fewest hours after which the slope says something: memory fills in the first minutes of a process.
const JUDGED_HOURS: f64 = 1.0;
/// Time for a build, and for processes to start and end.
const SPARE: Duration = Duration::from_secs(30 * 60);

/// A row of the file.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    /// Which run, named by when it began.
    run: u64,
    unix_s: u64,
    /// Since the run began.
    seconds: f64,
    resident_mib: f64,
    messages: u64,
    bytes: u64,
    killed: u64,
    ended: u64,
    failed: u64,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.split(',').map(str::trim);
        let mut cell = || cells.next();
        let row = Self {
            run: cell()?.parse().ok()?,
            unix_s: cell()?.parse().ok()?,
            seconds: cell()?.parse().ok()?,
            resident_mib: cell()?.parse().ok()?,
            messages: cell()?.parse().ok()?,
            bytes: cell()?.parse().ok()?,
            killed: cell()?.parse().ok()?,
            ended: cell()?.parse().ok()?,
            failed: cell()?.parse().ok()?,
        };
        cells.next().is_none().then_some(row)
    }
}

fn read(path: &Path) -> Result<Vec<Row>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let row = |line: &str| Row::parse(line).with_context(|| format!("{}: {line}", path.display()));
    text.lines().skip(1).map(row).collect()
}

fn runs(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| a.run == b.run)
}

/// Hours that all runs together lasted, as far as rows show it.
fn hours(rows: &[Row]) -> f64 {
    let seconds = runs(rows).filter_map(|run| Some(run.last()?.seconds - run.first()?.seconds));
    seconds.sum::<f64>() / 3600.0
}

/// Growth of the memory in MiB an hour, by least squares over all rows, with a beginning of its own for each
/// run.
fn slope(rows: &[Row]) -> Option<f64> {
    let (mut with_time, mut of_time) = (0.0, 0.0);
    for run in runs(rows) {
        let mean = |of: fn(&Row) -> f64| run.iter().map(of).sum::<f64>() / run.len() as f64;
        let (middle, level) = (mean(|row| row.seconds), mean(|row| row.resident_mib));
        for row in run {
            let hours = (row.seconds - middle) / 3600.0;
            with_time += hours * (row.resident_mib - level);
            of_time += hours * hours;
        }
    }
    (of_time > 0.0).then(|| with_time / of_time)
}

/// Says what the rows show, with each gap between two runs.
fn report(provider: &str, rows: &[Row]) -> String {
    let mut text = String::new();
    let sum = |of: fn(&Row) -> u64| runs(rows).filter_map(|run| run.last().map(of)).sum::<u64>();
    let slope = slope(rows).map_or("unknown".to_owned(), |slope| format!("{slope:.3} MiB an hour"));
    let _ = write!(
        text,
        "{provider}: {:.2} hours in {} runs, {} rows; {} clients killed, {} ended well; {} messages, {:.1} GB; \
         memory grew by {slope}",
        hours(rows),
        runs(rows).count(),
        rows.len(),
        sum(|row| row.killed),
        sum(|row| row.ended),
        sum(|row| row.messages),
        sum(|row| row.bytes) as f64 / 1e9,
    );
    let all: Vec<&[Row]> = runs(rows).collect();
    for two in all.windows(2) {
        if let [[.., last], [first, ..]] = two {
            let minutes = first.unix_s.saturating_sub(last.unix_s) as f64 / 60.0;
            let (from, to) = (last.unix_s, first.unix_s);
            let _ =
                write!(text, "\n  gap of {minutes:.1} minutes, from {from} to {to} (Unix seconds)");
        }
    }
    text
}

pub(super) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let provider = args.provider.as_str();
    ensure!(["shm", "roce"].contains(&provider), "--provider is {provider}: must be shm or roce");
    let ours = || repo.root().join(format!("docs/results/soak/duplex-{provider}.csv"));
    let path = args.rows.clone().unwrap_or_else(ours);
    let path = std::path::absolute(path)?;
    let left = args.hours - hours(&read(&path)?);
    if left > 0.0 && !args.report {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        go_on(repo, provider, &path, left)?;
    }
    let rows = read(&path)?;
    println!("{}", report(provider, &rows));
    if let Some(slope) = slope(&rows).filter(|_| hours(&rows) >= JUDGED_HOURS) {
        ensure!(slope < SLOPE_MAX, "the server's memory grows by {slope:.3} MiB an hour");
    }
    Ok(())
}

/// Runs the test for so many hours more.
fn go_on(repo: &Repo, provider: &str, rows: &Path, hours: f64) -> Result<()> {
    let words = ["test", "--release", "--package", "catchment-duplex", "--test", "duplex"];
    let mut command = run::cargo(repo.root(), &words);
    command.args(["s3_16_a_server_is_as_before", "--", "--nocapture"]);
    // A minute more than its rows show.
    let seconds = hours * 3600.0 + 60.0;
    command.env("CATCHMENT_TEST_SCALE", (seconds / SECONDS_AT_SCALE_1).ceil().to_string());
    command.env("CATCHMENT_SOAK_PROVIDER", provider).env("CATCHMENT_SOAK_ROWS", rows);
    let limit = Duration::from_secs_f64(seconds) + SPARE;
    let finished = run::finish(&mut command, limit, Show::All)?;
    run::demand_success(&command, finished.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of an hour that begins at `level` and grows by so many MiB an hour.
    fn of(run: u64, level: f64, growth: f64) -> Vec<Row> {
        let row = |minute: u32| Row {
            run,
            unix_s: run + 60 * u64::from(minute),
            seconds: 60.0 * f64::from(minute),
            resident_mib: level + growth * f64::from(minute) / 60.0,
            messages: 10 * u64::from(minute),
            bytes: 0,
            killed: u64::from(minute),
            ended: 1,
            failed: 0,
        };
        (0..=60).map(row).collect()
    }

    #[test]
    fn a_leak_shows_though_each_run_begins_anew() {
        // Over both as one line memory falls.
        let rows = [of(1000, 20.0, 3.0), of(9000, 5.0, 3.0)].concat();
        assert!((slope(&rows).unwrap() - 3.0).abs() < 1e-9);
        let flat = [of(1000, 5.0, 0.0), of(9000, 25.0, 0.0)].concat();
        assert!(slope(&flat).unwrap().abs() < 1e-9);
        assert_eq!(slope(&rows[..1]), None);
        assert!((hours(&rows) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn runs_are_summed_and_gaps_listed() {
        let rows = [of(1000, 5.0, 0.0), of(10_000, 5.0, 0.0)].concat();
        let text = report("shm", &rows);
        assert!(text.contains("2.00 hours in 2 runs, 122 rows; 120 clients killed"), "{text}");
        assert!(text.contains("1200 messages"), "{text}");
        assert!(text.contains("gap of 90.0 minutes, from 4600 to 10000"), "{text}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn rows_are_read_and_others_refused() {
        let row = Row::parse("1000,1060,60.0,9.250,12,3400,1,2,0").unwrap();
        assert_eq!((row.run, row.resident_mib, row.bytes), (1000, 9.25, 3400));
        assert_eq!(Row::parse("1000,1060,60.0"), None);
        assert_eq!(Row::parse("1000,1060,60.0,9.250,12,3400,1,2,0,7"), None);
    }
}
