//! Commands that a recipe starts: their output is shown, their time limited, their test cases counted.
use crate::{limited, proc};
use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time after which a command of a recipe is considered hung and killed: twice what a build of all
/// takes on the slowest machine seen.
pub(crate) const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Time after the end of a command for the rest of its output to arrive.
const OUTPUT_LIMIT: Duration = Duration::from_secs(2);

/// Test cases by outcome, from the `test result:` lines of test programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    pub(crate) failures: Vec<Failure>,
    /// Package and path of each test that passed, of programs that ran under [`crate::limited`].
    pub(crate) passes: Vec<String>,
}

/// A test case that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) name: String,
    /// What it said: the first lines, no backtrace.
    pub(crate) said: Vec<String>,
}

impl Tally {
    pub(crate) fn names_of_failures(&self) -> String {
        self.failures.iter().map(|failure| failure.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Enough for the message of a test that shows what a command wrote.
const SAID_LINES_MAX: usize = 60;

pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) tally: Tally,
    pub(crate) stdout: String,
}

/// Returns `cargo` with `args`, in `folder`, without the variables that `cargo run` set for us.
///
/// Otherwise build scripts that watch variables such as `CARGO_PKG_NAME` would run again in every other
/// build.
pub(crate) fn cargo(folder: &Path, args: &[&str]) -> Command {
    cargo_at(&std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), folder, args)
}

/// Returns `cargo` as before, of rustup's nightly toolchain.
pub(crate) fn nightly_cargo(folder: &Path, args: &[&str]) -> Command {
    let mut command = cargo_at(OsStr::new("cargo"), folder, args);
    command.env("RUSTUP_TOOLCHAIN", "nightly");
    command
}

fn cargo_at(program: &OsStr, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(set_by_cargo_run) {
            command.env_remove(name);
        }
    }
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    if !is_built_again(folder) {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Returns whether `folder` is under development, so that incremental builds are worth their space. In
/// a fresh clone only this program was built incrementally.
fn is_built_again(folder: &Path) -> bool {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(folder.join("target"), PathBuf::from);
    let kept = std::fs::read_dir(target.join("debug/incremental"));
    let mut kept = kept.into_iter().flatten().flatten();
    let others = kept.any(|entry| !entry.file_name().to_string_lossy().starts_with("xtask-"));
    others && std::env::var_os("CI").is_none()
}

/// Returns `command` so that it takes the processors only where nothing else does.
pub(crate) fn at_rest(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

fn set_by_cargo_run(name: &str) -> bool {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let finished = finish(command, LIMIT, Show::All)?;
    demand_success(command, finished.status)
}

pub(crate) fn demand_success(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    bail!("`{}` failed: {status}", shown(command))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    All,
    Nothing,
}

/// Runs `command` to its end and collects its stdout; it inherits our stderr.
pub(crate) fn finish(command: &mut Command, limit: Duration, show: Show) -> Result<Finished> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let stdout = child.stdout.take().context("stdout was not piped")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(collect(stdout, show)));
    let status = wait(&mut child, limit).with_context(|| shown(command))?;
    let Ok(stdout) = receiver.recv_timeout(OUTPUT_LIMIT) else {
        bail!("`{}` ended, but a process that it started still holds its output", shown(command));
    };
    Ok(Finished { status, tally: count_cases(&stdout), stdout })
}

fn collect(stdout: impl Read, show: Show) -> String {
    let mut reader = BufReader::new(stdout);
    let mut all = String::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&line);
        if show == Show::All {
            print!("{text}");
        }
        all.push_str(&text);
        line.clear();
    }
    all
}

/// Waits until `child` ends; kills it and its descendants once `limit` has passed.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    wait_or(child, limit, |_| ())
}

pub(crate) fn wait_or(
    child: &mut Child,
    limit: Duration,
    hangs: impl FnOnce(u32),
) -> Result<ExitStatus> {
    if let Some(status) = proc::poll_until(limit, || Ok(child.try_wait()?))? {
        return Ok(status);
    }
    hangs(child.id());
    kill_tree(child);
    bail!("still running after {} s, killed", limit.as_secs())
}

/// A process that is killed with its descendants when this is dropped, if it has not ended by itself.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            kill_tree(&mut self.0);
        }
    }
}

fn kill_tree(child: &mut Child) {
    let below = stopped_tree(child.id());
    // Each may have ended by itself meanwhile.
    let _ = child.kill();
    let _ = child.wait();
    for pid in below {
        let _ = proc::signal(pid, "KILL");
        proc::gone_within(pid, Duration::from_secs(1));
    }
}

/// Stops `pid` and its descendants, and returns the descendants: a running process could start another
/// one unnoticed.
fn stopped_tree(pid: u32) -> Vec<u32> {
    let mut stopped = vec![pid];
    let _ = proc::signal(pid, "STOP");
    loop {
        let new: Vec<_> =
            proc::descendants(pid).into_iter().filter(|below| !stopped.contains(below)).collect();
        if new.is_empty() {
            return stopped.split_off(1);
        }
        for below in new {
            let _ = proc::signal(below, "STOP");
            stopped.push(below);
        }
    }
}

/// Returns the tally of a command that ran tests, all of which must have run. Failures are in it, not an
/// error.
pub(crate) fn counted(
    command: &Command,
    Finished { status, tally, .. }: Finished,
) -> Result<Tally> {
    ensure!(tally.ignored == 0, "{} tests did not run", tally.ignored);
    if tally.failed == 0 {
        demand_success(command, status)?;
    }
    Ok(tally)
}

pub(crate) fn count_cases(output: &str) -> Tally {
    let mut sum = Tally::default();
    let (mut package, mut speaks) = (None, None);
    for line in output.lines() {
        package = limited::package_in(line).or(package);
        speaks = who_speaks(line, speaks);
        sum.failures.extend(failed_case(line));
        if let Some(name) = speaks
            && let Some(failure) = sum.failures.iter_mut().rfind(|failure| failure.name == name)
            && failure.said.len() < SAID_LINES_MAX
        {
            failure.said.push(line.to_owned());
        }
        if let (Some(package), Some(path)) = (package, passed_case(line)) {
            sum.passes.push(format!("{package}::{path}"));
        }
        if let Some(counts) = line.split("test result: ").nth(1) {
            sum.passed += number_before(counts, " passed");
            sum.failed += number_before(counts, " failed");
            sum.ignored += number_before(counts, " ignored");
        }
    }
    sum
}

fn failed_case(line: &str) -> Option<Failure> {
    if let Some(of_lab) = line.strip_prefix("FAIL ") {
        let name = of_lab.trim_start().split("  ").nth(1)?.to_owned();
        return Some(Failure { name, said: vec![line.to_owned()] });
    }
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let failed = verdict.contains("FAILED");
    failed.then(|| Failure { name: name.to_owned(), said: Vec::new() })
}

/// Returns the test case to which a line belongs after the tests of a program, where what those that failed said is
/// repeated; `before` is that of the line before.
fn who_speaks<'a>(line: &'a str, before: Option<&'a str>) -> Option<&'a str> {
    if let Some(name) =
        line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
    {
        return Some(name);
    }
    before.filter(|_| line != "failures:" && line != "stack backtrace:")
}

fn passed_case(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let passed = verdict.contains("ok") && !verdict.contains("FAILED");
    passed.then(|| name.trim_end_matches(" - should panic"))
}

fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().filter(|before| before.len() < line.len());
    let digits = before.and_then(|before| before.rsplit(' ').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(name: &str, said: &[&str]) -> Failure {
        let said = said.iter().map(|line| (*line).to_owned()).collect();
        Failure { name: name.to_owned(), said }
    }

    #[test]
    fn cases_are_summed_over_all_test_programs() {
        let output = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; in 0.00s\n\
            noise: 7 passed\n\
            test before::a_program ... ok\n\
            tests of catchment-roce\n\
            test a::b ... FAILED\n\
            test a::c ... \u{1b}[32mok\u{1b}[0m\n\
            test a::d - should panic ... ok\n\
            failures:\n\
            ---- a::b stdout ----\n\
            it is 3\n\
            stack backtrace:\n\
            0: main\n\
            failures:\n\
            a::b\n\
            FAIL    0.250 s  operations/gap/v4  no answer\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(
            count_cases(output),
            Tally {
                passed: 13,
                failed: 2,
                ignored: 1,
                failures: vec![
                    failure("a::b", &["---- a::b stdout ----", "it is 3"]),
                    failure(
                        "operations/gap/v4",
                        &["FAIL    0.250 s  operations/gap/v4  no answer"]
                    ),
                ],
                passes: vec!["catchment-roce::a::c".to_owned(), "catchment-roce::a::d".to_owned()],
            }
        );
    }

    #[test]
    fn coloured_results_count_too() {
        let output = "test result: \u{1b}[32mok\u{1b}[0m. 4 passed; 0 failed; 0 ignored;";
        assert_eq!(count_cases(output).passed, 4);
    }

    #[test]
    fn output_and_status_of_a_command_come_back() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; exit 3"]);
        let finished = finish(&mut command, LIMIT, Show::Nothing).unwrap();
        assert_eq!(finished.stdout, "one\ntwo\n");
        assert_eq!(finished.status.code(), Some(3));
        let error = demand_success(&command, finished.status).unwrap_err().to_string();
        assert!(error.contains("sh -c 'echo one; echo two; exit 3'"), "{error}");
    }

    #[test]
    fn a_command_that_leaves_a_process_behind_is_an_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 4322 &"]);
        let mark = format!("{}", std::process::id());
        command.env("CATCHMENT_RUN_TEST", &mark);
        let error = finish(&mut command, LIMIT, Show::Nothing).err().unwrap();
        for (pid, _) in proc::with_environment("CATCHMENT_RUN_TEST", &mark) {
            proc::signal(pid, "KILL").unwrap();
        }
        assert!(error.to_string().contains("still holds its output"), "{error}");
    }

    #[test]
    fn a_hanging_command_is_killed_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 4321 & echo $!; wait"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let below: u32 = line.trim().parse().unwrap();
        assert!(proc::alive(below));
        let error = wait(&mut child, Duration::from_millis(10)).unwrap_err().to_string();
        assert!(error.contains("still running"), "{error}");
        assert!(proc::gone_within(below, Duration::from_secs(5)));
    }
}
