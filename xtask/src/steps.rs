//! The steps of `cargo xtask test`, in the order in which they find errors soonest.
//!
//! Builds are shared: clippy and docs only check; `build`, `test` and `doctest` use the development
//! profile; `demo`, `soak`, `lab` and `sim` use one release build of all programs that they start; loom has a folder of
//! its own, because its `--cfg` would otherwise rebuild everything twice. The release build, loom's and the docs are
//! made beside the tests and the lab ([`begin_builds`]).
use crate::ahead::Ahead;
use crate::repo::Repo;
use crate::run::{self, Show, Tally};
use crate::{
    attack, deny, docs, lab, limited, metadata, prerequisites, programs, requirements, soak, tidy,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
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
    step("tools", "the tools that tests use are installed", true, tools),
    step("fmt", "the code is formatted", true, fmt),
    step("tidy", "the rules of cargo xtask tidy", true, tidy_rules),
    step("deny", "licences and weaknesses of dependencies", true, dependencies),
    step("clippy", "no warning in any target", true, clippy),
    step("build", "everything builds, tests too", true, build),
    step("test", "unit and integration tests", true, tests),
    step("doctest", "the examples in the documentation", false, doctests),
    step("release", "the programs, as users build them", false, release),
    step("demo", "a short demo, its summary checked", false, demo),
    step("soak", "a few rounds of kill -9", false, short_soak),
    step("attack", "attacks from outside, those that take a moment", false, attacks),
    step("lab", "the kernel's RDMA devices, in virtual machines", false, lab_cases),
    step("loom", "the lock-free protocols under every interleaving", false, loom),
    step(
        "required",
        "each test that a requirement of the papers names has passed",
        false,
        required,
    ),
    step("docs", "documentation without warnings, links", false, documents),
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

impl Context<'_> {
    /// Time after which one test program is considered hung. The longest takes a minute.
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

    /// Runs tests and counts them. Failures are counted, not an error: the caller reports them.
    fn cases(&self, command: &mut Command) -> Result<Tally> {
        let finished = run::finish(command, self.stretched(run::LIMIT), Show::All)?;
        run::counted(command, finished)
    }
}

const SOAK_SECONDS_PER_ROUND: f64 = 2.0;
const DEMO_SECONDS: &str = "3";
const DEMO_LIMIT: Duration = Duration::from_secs(60);

const LOOM_TARGETS: &[(&str, &str)] = &[
    ("catchment-verbs", "crates/verbs/tests/loom/main.rs"),
    ("catchment-transfer", "crates/transfer/tests/loom/main.rs"),
    ("catchment-mechanisms", "experiments/mechanisms/tests/loom/main.rs"),
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

fn dependencies(context: &Context<'_>) -> Result<Tally> {
    deny::check(context.repo).map(no_cases)
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
    ensure!(tally.passed > 0, "no test ran");
    Ok(tally)
}

/// Many tests mostly wait, so a machine with few cores can run more of them at once.
fn test_threads() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.max(TEST_THREADS_AT_LEAST).to_string()
}

const TEST_THREADS_AT_LEAST: usize = 4;

fn doctests(context: &Context<'_>) -> Result<Tally> {
    context.cases(&mut context.cargo_test(&["--doc", "--no-fail-fast"]))
}

/// Begins the builds of the steps after the tests, which mostly wait, as the lab does: most of them cost no time.
pub(crate) fn begin_builds(context: &Context<'_>) -> Result<Ahead> {
    let mut loom = loom_tests(context)?;
    loom.arg("--no-run");
    Ok(Ahead::begin(vec![programs::build(context.repo), loom, docs::build(context.repo)]))
}

/// Returns the command that runs all in one build, so that shared dependencies are built once.
fn loom_tests(context: &Context<'_>) -> Result<Command> {
    let mut words = vec!["test", "--release", "--no-fail-fast", "--test", "loom"];
    for (package, target) in LOOM_TARGETS {
        ensure!(context.repo.path(target).is_file(), "{target} is missing, so nothing was checked");
        words.extend(["--package", package]);
    }
    let mut command = run::cargo(context.repo.root(), &words);
    command.env("RUSTFLAGS", "--cfg loom");
    command.args(limited::for_cargo(context.stretched(run::LIMIT))?);
    command.env("CARGO_TARGET_DIR", metadata::target_folder(context.repo)?.join("loom"));
    Ok(command)
}

fn loom(context: &Context<'_>) -> Result<Tally> {
    let mut command = loom_tests(context)?;
    let finished = run::finish(&mut command, context.stretched(run::LIMIT), Show::All)?;
    let empty = finished.stdout.lines().any(|line| line == "running 0 tests");
    ensure!(!empty, "a program has no test under --cfg loom");
    run::counted(&command, finished)
}

fn required(context: &Context<'_>) -> Result<Tally> {
    requirements::demand_passed(context.repo, context.packages).map(no_cases)
}

fn lab_cases(context: &Context<'_>) -> Result<Tally> {
    lab::all(context.repo, context.full)
}

fn documents(context: &Context<'_>) -> Result<Tally> {
    docs::run(context.repo).map(no_cases)
}

fn release(context: &Context<'_>) -> Result<Tally> {
    let program = programs::built(context.repo, programs::CATCHMENT)?;
    let bytes = std::fs::read(&program).with_context(|| program.display().to_string())?;
    let home = std::env::var_os("CARGO_HOME").or_else(|| std::env::var_os("HOME"));
    let places = [Some(context.repo.root().as_os_str().to_owned()), home];
    check_program(&bytes, &places.into_iter().flatten().collect::<Vec<_>>()).map(no_cases)
}

/// Checks that the program has no symbols and names no folder of this machine.
fn check_program(bytes: &[u8], places: &[OsString]) -> Result<()> {
    let most = PROGRAM_BYTES_MAX;
    ensure!(bytes.len() <= most, "the program has {} bytes, more than {most}", bytes.len());
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    ensure!(!has(b".symtab\0"), "the program has symbols: profile.release.strip is not at work");
    for place in places {
        let folder = [place.as_bytes(), b"/"].concat();
        ensure!(
            !has(&folder),
            "the program names {}: .cargo/rustc.sh was not at work; \
             unset RUSTC_WRAPPER, remove {}/target/release and build again",
            place.display(),
            places[0].display()
        );
    }
    Ok(())
}

/// It has about 19 MB; with tables of symbols some 70.
const PROGRAM_BYTES_MAX: usize = 24 << 20;

fn short_soak(context: &Context<'_>) -> Result<Tally> {
    let rounds = if context.full { 50 } else { 5 };
    soak::short(context.repo, rounds, SOAK_SECONDS_PER_ROUND).map(no_cases)
}

fn attacks(context: &Context<'_>) -> Result<Tally> {
    attack::short(context.repo, context.full).map(no_cases)
}

fn simulate(context: &Context<'_>) -> Result<Tally> {
    let seeds = if context.full { 10_000 } else { 300 };
    soak::roce_seeds(context.repo, seeds).map(no_cases)
}

fn demo(context: &Context<'_>) -> Result<Tally> {
    let mut command = Command::new(programs::built(context.repo, programs::CATCHMENT)?);
    command.args(["demo", "--json", "--seconds", DEMO_SECONDS]).current_dir(context.repo.root());
    let finished = run::finish(&mut command, DEMO_LIMIT, Show::All)?;
    run::demand_success(&command, finished.status)?;
    check_demo(&finished.stdout).map(no_cases)
}

/// Checks only that the release build keeps up. The command itself fails if a frame is lost, and its
/// tests check the whole summary (`crates/cli/tests/cli/demo.rs`).
fn check_demo(stdout: &str) -> Result<()> {
    let line = stdout.lines().last().unwrap_or_default();
    let summary: Value = serde_json::from_str(line)
        .with_context(|| format!("the demo wrote no JSON summary at its end: {line:?}"))?;
    // 12 devices at 25 frames/s; half of that is enough on a busy machine.
    let least = 12.0 * 25.0 * DEMO_SECONDS.parse::<f64>()? / 2.0;
    let verified =
        summary["frames_verified"].as_f64().context("frames_verified is not a number")?;
    ensure!(verified >= least, "{verified} frames were verified, expected at least {least}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_with_few_frames_or_no_summary_is_refused() {
        check_demo("words\n{\"frames_verified\":900}\n").unwrap();
        let few = check_demo("{\"frames_verified\":10}").unwrap_err().to_string();
        assert!(few.contains("10 frames"), "{few}");
        assert!(check_demo("{\"frames_verified\":null}").is_err());
        assert!(check_demo("").is_err());
        assert!(check_demo("done\n").unwrap_err().to_string().contains("no JSON summary"));
    }

    #[test]
    fn a_program_that_tells_where_it_was_built_is_refused() {
        let places = [OsString::from("/place/of/me/catchment"), OsString::from("/place/of/me")];
        check_program(b"registry/a/src/lib.rs", &places).unwrap();
        let told = |bytes: &[u8]| check_program(bytes, &places).unwrap_err().to_string();
        assert!(told(b"at /place/of/me/.cargo/registry/a").contains("names /place/of/me:"));
        assert!(told(b"\0.symtab\0").contains("symbols"));
        assert!(told(&vec![0; PROGRAM_BYTES_MAX + 1]).contains("25165825 bytes"));
    }

    #[test]
    fn names_of_steps_differ() {
        let names: std::collections::BTreeSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
