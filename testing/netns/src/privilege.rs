//! Getting the right to make namespaces.
use super::Namespace;
use std::env;
use std::process::{Command, Stdio};

/// Set in a process that was started with privilege, so that it does not start another one.
const MARK: &str = "CATCHMENT_NETNS_PRIVILEGED";

/// Whether this process may make network namespaces.
pub fn has_privilege() -> bool {
    Namespace::new().is_ok()
}

/// Runs the body of a test that makes namespaces. Where this process may not, the test runs again
/// in a child that may, in a user namespace of its own.
///
/// `test` is the full name of the test in its binary.
///
/// # Panics
/// If the body does, here or in the child; if no way gives the privilege. A test is never left out.
pub fn with_privilege(test: &str, body: impl FnOnce()) {
    if has_privilege() {
        return body();
    }
    assert!(
        env::var_os(MARK).is_none(),
        "no network namespaces even in a user namespace: run the tests as root"
    );
    let binary = env::current_exe().expect("a process knows its program");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount"])
        .arg(binary)
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .stdin(Stdio::null())
        .output()
        .expect("unshare(1) is in util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} in a user namespace: {text}{errors}\nrun the tests as root, or allow user namespaces"
    );
}
