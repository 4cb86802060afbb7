//! Tests that need a process of their own.
use std::env;
use std::process::{Command, Stdio};

const MARK: &str = "CATCHMENT_TEST_OWN_PROCESS";

/// Runs the body of a test in a process of its own: the test program again, with this test only. For
/// tests that look at all threads, children or descriptors of their process.
///
/// `test` is the full name of the test in its binary.
///
/// # Panics
/// If the body does, in that process.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    if env::var_os(MARK).is_some_and(|marked| marked == test) {
        return body();
    }
    let binary = env::current_exe().expect("a process knows its program");
    let output = Command::new(binary)
        .args(["--exact", test, "--nocapture"])
        .env(MARK, test)
        .stdin(Stdio::null())
        .output()
        .expect("a test program can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} in a process of its own: {text}{errors}"
    );
}
