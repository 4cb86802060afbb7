//! `cargo xtask test`: runs the steps, times them, and counts what passed.
use crate::passed;
use crate::repo::Repo;
use crate::run::Tally;
use crate::steps::{self, Context, STEPS, Step};
use crate::stress::BusyLoops;
use anyhow::{Context as _, Result, bail, ensure};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Which steps to run and when to stop.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Run only this step; may be repeated
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps
    #[arg(long)]
    list: bool,
    /// Skip steps that take minutes
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Stop at the first step that fails
    #[arg(long)]
    fail_fast: bool,
    /// Run the full matrices and long soaks, as at night
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Run beside four busy loops, under which tests that assert a time fail
    #[arg(long)]
    stress: bool,
    /// Test only this package; may be repeated
    #[arg(long, value_name = "PACKAGE")]
    package: Vec<String>,
}

struct Row {
    name: &'static str,
    took: Duration,
    tally: Tally,
    error: Option<anyhow::Error>,
}

impl Row {
    fn passed(&self) -> bool {
        self.error.is_none() && self.tally.failed == 0
    }

    fn cases(&self) -> u64 {
        self.tally.passed + self.tally.failed
    }
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    if args.list {
        print!("{}", listing());
        return Ok(());
    }
    let context = Context { repo, full: args.full, stress: args.stress, packages: &args.package };
    let steps = chosen(args)?;
    let _loops = args.stress.then(|| load(&context)).transpose()?;
    let (mut rows, mut ahead) = (Vec::new(), None);
    let builds_ahead = !args.stress && steps.iter().any(|step| step.name == "release");
    for step in steps {
        if step.name == "test" && builds_ahead {
            ahead = Some(steps::begin_builds(&context)?);
        }
        let row = perform(&context, step);
        let stop = args.fail_fast && !row.passed();
        rows.push(row);
        if stop {
            break;
        }
    }
    drop(ahead);
    let all = args.only.is_empty() && !args.quick && args.package.is_empty();
    println!("\n{}", summary(&rows, all));
    ensure!(
        !args.stress || rows.iter().any(|row| row.cases() > 0),
        "no test ran beside the busy loops: add --only test"
    );
    let failed: Vec<_> = rows.iter().filter(|row| !row.passed()).map(|row| row.name).collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "failed: {}; again with: cargo xtask test --only {}",
        failed.join(", "),
        failed.join(" --only ")
    )
}

/// Builds the tests, then starts the busy loops: a build need not be slow, too.
fn load(context: &Context<'_>) -> Result<BusyLoops> {
    println!("\nbuilding the tests, then starting the busy loops");
    steps::build(context)?;
    BusyLoops::start()
}

fn listing() -> String {
    STEPS.iter().map(|step| format!("{:<8} {}\n", step.name, step.about)).collect()
}

fn chosen(args: &Args) -> Result<Vec<&'static Step>> {
    if args.only.is_empty() {
        return Ok(STEPS.iter().filter(|step| step.quick || !args.quick).collect());
    }
    let by_name = |name: &String| {
        let step = STEPS.iter().find(|step| step.name == name);
        step.with_context(|| format!("no step is called {name:?}; the steps are\n{}", listing()))
    };
    args.only.iter().map(by_name).collect()
}

fn perform(context: &Context<'_>, step: &'static Step) -> Row {
    println!("\n=== {}: {}", step.name, step.about);
    let start = Instant::now();
    let (tally, error) = match kept(context, step) {
        Ok(tally) => (tally, None),
        Err(error) => (Tally::default(), Some(error)),
    };
    let row = Row { name: step.name, took: start.elapsed(), tally, error };
    println!("=== {}: {} in {:.1} s", row.name, outcome(&row), row.took.as_secs_f64());
    row
}

/// Runs the step and keeps the names of the tests that passed.
fn kept(context: &Context<'_>, step: &Step) -> Result<Tally> {
    let is_kept = passed::STEPS.contains(&step.name);
    if is_kept {
        passed::forget(context.repo, step.name)?;
    }
    let tally = (step.run)(context)?;
    if is_kept {
        passed::keep(context.repo, step.name, &tally.passes)?;
    }
    Ok(tally)
}

fn outcome(row: &Row) -> String {
    match &row.error {
        Some(error) => format!("FAILED: {error:#}"),
        None if row.tally.failed > 0 => {
            format!("FAILED: {} test cases: {}", row.tally.failed, row.tally.names_of_failures())
        }
        None => "passed".to_owned(),
    }
}

/// Test cases by step before tests were merged and matrices cut. docs/reference/tests.md says which
/// test covers each that went.
const CASES_BEFORE: &[(&str, u64)] = &[("test", 1540), ("doctest", 10), ("loom", 27), ("lab", 751)];

fn before_and_now(rows: &[Row]) -> String {
    let mut text = String::new();
    let (mut before, mut now) = (0, 0);
    for (step, cases_before) in CASES_BEFORE {
        if let Some(row) = rows.iter().find(|row| row.name == *step) {
            let cases = row.cases();
            let _ = writeln!(text, "cases of {step}: {cases_before} before, {cases} now");
            (before, now) = (before + cases_before, now + cases);
        }
    }
    let _ = writeln!(text, "cases in all: {before} before, {now} now");
    text + "docs/reference/tests.md says which test covers each that went\n"
}

fn summary(rows: &[Row], all: bool) -> String {
    let mut table = format!("{:<10}{:>9}{:>8}  result\n", "step", "seconds", "cases");
    let mut failures = String::new();
    for row in rows {
        let (name, cases, seconds) = (row.name, row.cases(), row.took.as_secs_f64());
        let outcome = outcome(row);
        let first = outcome.lines().next().unwrap_or_default();
        let _ = writeln!(table, "{name:<10}{seconds:>9.1}{cases:>8}  {first:.100}");
        for failure in &row.tally.failures {
            let _ = writeln!(failures, "failed in {name}: {}", failure.name);
            for line in &failure.said {
                let _ = writeln!(failures, "    {line}");
            }
        }
    }
    let total: Duration = rows.iter().map(|row| row.took).sum();
    let _ = writeln!(table, "{:<10}{:>9.1}", "all", total.as_secs_f64());
    table += &failures;
    if all {
        table += &before_and_now(rows);
    }
    let passed = |row: &Row| row.tally.passed + u64::from(row.passed());
    let failed = |row: &Row| row.tally.failed + u64::from(!row.passed());
    let sum = |of: &dyn Fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let _ = write!(table, "{} passed, {} failed", sum(&passed), sum(&failed));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Failure;

    fn args(only: &[&str], quick: bool) -> Args {
        let only = only.iter().map(|name| (*name).to_owned()).collect();
        Args { only, quick, ..Args::default() }
    }

    fn failure(n: u64) -> Failure {
        Failure { name: format!("case_{n}"), said: vec![format!("it is {n}")] }
    }

    fn row(name: &'static str, passed: u64, failed: u64, error: Option<&str>) -> Row {
        let error = error.map(|text| anyhow::anyhow!(text.to_owned()));
        let tally = Tally {
            passed,
            failed,
            ignored: 0,
            failures: (0..failed).map(failure).collect(),
            passes: Vec::new(),
        };
        Row { name, took: Duration::from_millis(1500), tally, error }
    }

    #[test]
    fn steps_are_chosen_by_name_or_by_length() {
        let names = |args: &Args| chosen(args).unwrap().iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names(&args(&["docs", "fmt"], false)), ["docs", "fmt"]);
        assert_eq!(names(&args(&[], false)).len(), STEPS.len());
        assert!(!names(&args(&[], true)).contains(&"soak"));
        let error = chosen(&args(&["speed"], false)).err().unwrap().to_string();
        assert!(error.contains("\"speed\"") && error.contains("doctest"), "{error}");
    }

    #[test]
    fn the_last_line_counts_cases_and_steps() {
        let rows = [
            row("fmt", 0, 0, None),
            row("test", 40, 2, None),
            row("docs", 0, 0, Some("3 links are broken")),
        ];
        let text = summary(&rows, true);
        assert!(text.contains("cases of test: 1540 before, 42 now"), "{text}");
        assert_eq!(text.lines().last(), Some("41 passed, 4 failed"));
        assert!(text.contains("FAILED: 2 test cases"), "{text}");
        assert!(text.contains("failed in test: case_1\n    it is 1\n"), "{text}");
        assert!(text.contains("in all: 1540 before, 42 now"), "{text}");
        assert!(text.contains("FAILED: 3 links are broken"), "{text}");
        assert!(text.contains("all             4.5"), "{text}");
    }
}
