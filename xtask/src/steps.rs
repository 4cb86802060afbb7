//! The steps of `cargo xtask test`, in the order in which they find a mistake soonest.
//!
//! What builds what: clippy and docs only check; `build`, `test` and `doctest` share the development
//! profile; `demo`, `soak`, `lab` and `sim` share one release build of all programs that they start;
//! loom has a folder of its own, because its `--cfg` would otherwise rebuild everything twice.
use crate::repo::Repo;
use crate::run::{self, Finished, Show, Tally};
use crate::{docs, lab, limited, metadata, prerequisites, programs, soak, tidy};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

pub(crate) struct Context<'a> {
    pub(crate) repo: &'a Repo,
    pub(crate) full: bool,
    pub(crate) stress: bool,
    pub(crate) packages: &'a [String],
}

pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) quick: bool,
    pub(crate) run: fn(&Context<'_>) -> Result<Tally>,
}

pub(crate) const STEPS: &[Step] = &[
    step("tools", "what the tests call is installed", true, tools),
    step("fmt", "the code is formatted", true, fmt),
    step("tidy", "the rules of cargo xtask tidy", true, tidy_rules),
    step("clippy", "no warning in any target", true, clippy),
    step("build", "everything builds, tests too", true, build),
    step("test", "unit and integration tests", true, tests),
    step("doctest", "the examples in the documentation", false, doctests),
    step("loom", "the lock-free protocols under every interleaving", false, loom),
    step("docs", "documentation without warnings, links", false, documents),
    step("release", "the programs, as users build them", false, release),
    step("demo", "a short demo, its summary checked", false, demo),
    step("soak", "a few rounds of kill -9", false, short_soak),
    step("lab", "the kernel's RDMA devices, in virtual machines", false, lab_cases),
    step("sim", "RoCE on a bad network, new seeds", false, simulate),
];

const fn step(
    name: &'static str,
    about: &'static str,
    quick: bool,
    run: fn(&Context<'_>) -> Result<Tally>,
) -> Step {
    Step { name, about, quick, run }
}

struct Amount {
    soak_rounds: u64,
    roce_seeds: u64,
}

const SHORT: Amount = Amount { soak_rounds: 5, roce_seeds: 300 };
const FULL: Amount = Amount { soak_rounds: 50, roce_seeds: 10_000 };

impl Context<'_> {
    fn amount(&self) -> &'static Amount {
        if self.full { &FULL } else { &SHORT }
    }

    /// Time after which one test program is taken for hanging. The longest takes a minute.
    fn program_limit(&self) -> Duration {
        self.stretched(Duration::from_secs(5 * 60))
    }

    fn stretched(&self, limit: Duration) -> Duration {
        limit * if self.stress { 4 } else { 1 }
    }

    fn cargo_test(&self, more: &[&str]) -> Command {
        let mut command = run::cargo(self.repo.root(), &["test"]);
        if self.packages.is_empty() {
            command.arg("--workspace");
        }
        for package in self.packages {
            command.args(["--package", package]);
        }
        command.args(more);
        command
    }

    /// Runs tests and counts them. Failed ones are counted, not an error: the caller reports them.
    fn cases(&self, command: &mut Command) -> Result<Tally> {
        let finished = run::finish(command, self.stretched(run::LIMIT), Show::All)?;
        counted(command, finished)
    }
}

const SOAK_SECONDS_PER_ROUND: f64 = 2.0;
const DEMO_SECONDS: &str = "3";
const DEMO_LIMIT: Duration = Duration::from_secs(60);

const LOOM_TARGETS: &[(&str, &str)] = &[
    ("catchment-verbs", "crates/verbs/tests/loom/main.rs"),
    ("catchment-transfer", "crates/transfer/tests/loom/main.rs"),
    ("catchment-provider-shm", "crates/provider-shm/tests/loom.rs"),
    ("catchment-provider-roce", "crates/provider-roce/tests/loom/main.rs"),
];

fn no_cases((): ()) -> Tally {
    Tally::default()
}

fn tools(context: &Context<'_>) -> Result<Tally> {
    prerequisites::provide(context.repo.root())?;
    lab::provide().map(no_cases)
}

fn fmt(context: &Context<'_>) -> Result<Tally> {
    run::succeed(&mut run::cargo(context.repo.root(), &["fmt", "--all", "--check"])).map(no_cases)
}

fn tidy_rules(context: &Context<'_>) -> Result<Tally> {
    tidy::run(context.repo, &tidy::Args::default()).map(no_cases)
}

fn clippy(context: &Context<'_>) -> Result<Tally> {
    let args = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    run::succeed(&mut run::cargo(context.repo.root(), &args)).map(no_cases)
}

pub(crate) fn build(context: &Context<'_>) -> Result<Tally> {
    run::succeed(&mut context.cargo_test(&["--no-run", "--quiet"])).map(no_cases)
}

fn tests(context: &Context<'_>) -> Result<Tally> {
    let mut command = context.cargo_test(&["--lib", "--bins", "--tests", "--no-fail-fast"]);
    command.args(limited::for_cargo(context.program_limit())?);
    command.env("RUST_TEST_THREADS", test_threads());
    let tally = context.cases(&mut command)?;
    ensure!(tally.passed > 0, "not one test ran");
    Ok(tally)
}

/// Many tests wait for others: a machine with few cores has room for more of them.
fn test_threads() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.max(TEST_THREADS_AT_LEAST).to_string()
}

const TEST_THREADS_AT_LEAST: usize = 4;

fn doctests(context: &Context<'_>) -> Result<Tally> {
    context.cases(&mut context.cargo_test(&["--doc", "--no-fail-fast"]))
}

/// All in one build, so that what they share is built once.
fn loom(context: &Context<'_>) -> Result<Tally> {
    let mut words = vec!["test", "--release", "--no-fail-fast", "--test", "loom"];
    for (package, target) in LOOM_TARGETS {
        ensure!(context.repo.path(target).is_file(), "{target} is missing: nothing was checked");
        words.extend(["--package", package]);
    }
    let mut command = run::cargo(context.repo.root(), &words);
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", metadata::target_folder(context.repo)?.join("loom"));
    let finished = run::finish(&mut command, context.stretched(run::LIMIT), Show::All)?;
    let empty = finished.stdout.lines().any(|line| line == "running 0 tests");
    ensure!(!empty, "a program holds no test under --cfg loom");
    counted(&command, finished)
}

fn lab_cases(context: &Context<'_>) -> Result<Tally> {
    lab::all(context.repo, context.full)
}

fn documents(context: &Context<'_>) -> Result<Tally> {
    docs::run(context.repo).map(no_cases)
}

fn release(context: &Context<'_>) -> Result<Tally> {
    programs::built(context.repo, programs::CATCHMENT).map(drop).map(no_cases)
}

fn short_soak(context: &Context<'_>) -> Result<Tally> {
    let rounds = context.amount().soak_rounds;
    soak::short(context.repo, rounds, SOAK_SECONDS_PER_ROUND).map(no_cases)
}

fn simulate(context: &Context<'_>) -> Result<Tally> {
    soak::roce_seeds(context.repo, context.amount().roce_seeds).map(no_cases)
}

fn counted(command: &Command, finished: Finished) -> Result<Tally> {
    ensure!(finished.tally.ignored == 0, "{} tests did not run", finished.tally.ignored);
    if finished.tally.failed == 0 {
        run::demand_success(command, finished.status)?;
    }
    Ok(finished.tally)
}

fn demo(context: &Context<'_>) -> Result<Tally> {
    let mut command = Command::new(programs::built(context.repo, programs::CATCHMENT)?);
    command.args(["demo", "--json", "--seconds", DEMO_SECONDS]).current_dir(context.repo.root());
    let finished = run::finish(&mut command, DEMO_LIMIT, Show::All)?;
    run::demand_success(&command, finished.status)?;
    check_demo(&finished.stdout).map(no_cases)
}

fn check_demo(stdout: &str) -> Result<()> {
    // Braces of nested objects are indented, so that a line begins with the outermost one.
    let start = stdout.rfind("\n{").map_or(0, |newline| newline + 1);
    let line = stdout[start..].trim();
    let summary: Value = serde_json::from_str(line)
        .with_context(|| format!("the demo wrote no JSON summary at its end: {line:?}"))?;
    let number =
        |key: &str| summary[key].as_f64().with_context(|| format!("{key} is no number in {line}"));
    let sent = number("frames_sent")?;
    // 12 devices at 25 frames/s; half of that leaves room for a machine at work.
    let least = 12.0 * 25.0 * DEMO_SECONDS.parse::<f64>()? / 2.0;
    if sent < least {
        bail!("the demo sent {sent} frames, expected {least} at least");
    }
    let exact = [
        ("devices", 12.0),
        ("queue_pairs", 1.0),
        ("frames_lost", 0.0),
        ("frames_received", sent),
        ("frames_verified", sent),
    ];
    for (key, expected) in exact {
        let seen = number(key)?;
        ensure!(seen == expected, "{key} is {seen}, expected {expected}: {line}");
    }
    for key in MEASURED {
        ensure!(number(key)? >= 0.0, "{key} is negative: {line}");
    }
    for key in ["provider", "out_dir"] {
        ensure!(summary[key].is_string(), "{key} is no text in {line}");
    }
    Ok(())
}

/// What the summary measures; any value is good as long as it is one.
const MEASURED: &[&str] = &[
    "throughput_bytes_per_s",
    "latency_us_p50",
    "latency_us_p99",
    "latency_us_p999",
    "cpu_percent_source",
    "cpu_percent_collector",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary() -> Value {
        json!({
            "devices": 12, "queue_pairs": 1, "provider": "shm", "out_dir": "out",
            "frames_sent": 900, "frames_received": 900, "frames_verified": 900, "frames_lost": 0,
            "throughput_bytes_per_s": 1.5e8, "latency_us_p50": 80.5, "latency_us_p99": 200,
            "latency_us_p999": 400, "cpu_percent_source": 20.5, "cpu_percent_collector": 10.5,
        })
    }

    #[test]
    fn a_sound_summary_is_accepted_after_other_lines() {
        check_demo(&format!("{{\"progress\":1}}\n{}\n", summary())).unwrap();
        check_demo(&format!("words\n{:#}\n", summary())).unwrap();
    }

    #[test]
    fn every_wrong_value_is_refused_by_name() {
        let wrong = [
            ("devices", json!(11)),
            ("queue_pairs", json!(12)),
            ("frames_lost", json!(1)),
            ("frames_received", json!(899)),
            ("frames_verified", json!(899)),
            ("latency_us_p99", json!(null)),
            ("throughput_bytes_per_s", json!("fast")),
            ("provider", json!(1)),
            ("out_dir", json!(null)),
        ];
        for (key, value) in wrong {
            let mut summary = summary();
            summary[key] = value;
            let error = check_demo(&summary.to_string()).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn a_demo_that_hardly_ran_is_refused() {
        let mut few = summary();
        for key in ["frames_sent", "frames_received", "frames_verified"] {
            few[key] = json!(10);
        }
        assert!(check_demo(&few.to_string()).unwrap_err().to_string().contains("10 frames"));
        assert!(check_demo("").is_err());
        assert!(check_demo("done\n").unwrap_err().to_string().contains("no JSON summary"));
    }

    #[test]
    fn names_of_steps_differ() {
        let names: std::collections::BTreeSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
