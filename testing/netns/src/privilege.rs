//! The privilege to create namespaces.
use super::Namespace;
use super::process::run_test;
use std::env;
use std::process::Command;

/// Set in a process that was started with privilege, so that it does not start another.
const MARK: &str = "CATCHMENT_NETNS_PRIVILEGED";

/// Returns whether this process may create network namespaces.
pub fn has_privilege() -> bool {
    Namespace::new().is_ok()
}

/// Runs the body of a test that creates namespaces. Without that privilege, runs the test again in a
/// child in a user namespace of its own.
///
/// `test` is the full name of the test in its binary.
///
/// # Panics
/// If the body panics, here or in the child, or the privilege is unavailable: no test is skipped.
pub fn with_privilege(test: &str, body: impl FnOnce()) {
    if has_privilege() {
        return body();
    }
    assert!(
        env::var_os(MARK).is_none(),
        "no network namespaces even in a user namespace: run the tests as root"
    );
    let binary = env::current_exe().expect("a process knows its program");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount"]).arg(binary).env(MARK, "1");
    run_test(
        &mut command,
        test,
        "in a user namespace (run the tests as root, or allow user namespaces)",
    );
}
