//! Tests that need a process of their own, and queries of other processes.
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const MARK: &str = "CATCHMENT_TEST_OWN_PROCESS";

/// Runs the body of a test in a process of its own: the test program again, with only this test. For
/// tests that inspect all threads, children or descriptors of their process.
///
/// `test` is the full name of the test in its binary.
///
/// # Panics
/// If the body panics in that process.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    if env::var_os(MARK).is_some_and(|marked| marked == test) {
        return body();
    }
    let binary = env::current_exe().expect("a process knows its program");
    let mut command = Command::new(binary);
    run_test(command.env(MARK, test), test, "in a process of its own");
}

/// Runs one test of the test program that `command` starts; panics if it fails.
pub(crate) fn run_test(command: &mut Command, test: &str, place: &str) {
    let output = command
        .args(["--exact", test, "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .expect("a test program can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test} {place}: {text}{errors}");
}

/// Polls for a state without an event, such as files and processes of others.
///
/// # Panics
/// If it does not occur within a minute, longer than anything takes on a busy machine.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "timed out waiting until {what}");
        // The state has no event.
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the running children of process `parent`, with their names.
pub fn children_of(parent: u32) -> Vec<(u32, String)> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let all: String = lists.collect();
    let ids = all.split(' ').filter_map(|id| id.parse().ok());
    ids.filter_map(|id| Some((id, running(id)?))).collect()
}

/// Returns the name of process `id` while it runs; none once it has ended, even if not yet reaped.
pub fn running(id: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may itself hold parentheses.
    let (head, state) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    (!state.starts_with(['Z', 'X'])).then(|| name.to_owned())
}
