//! The privilege to create namespaces.
use super::Namespace;
use super::process::run_test;
use std::path::Path;
use std::process::Command;
use std::{env, io};

/// Set in a process that was started with privilege, so that it does not start another.
const MARK: &str = "CATCHMENT_NETNS_PRIVILEGED";

/// Returns whether this process may create network namespaces.
pub fn has_privilege() -> bool {
    Namespace::new().is_ok()
}

/// Returns a command that runs a program in a user namespace of its own.
fn in_user_namespace(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount"]).arg(program);
    command.env(MARK, "1");
    command
}

/// Returns why this process may have no user namespace with network namespaces in it, as `unshare(1)` says it; nothing if it
/// may. Some systems forbid them to who is not root.
pub fn why_no_user_namespace() -> Option<String> {
    match in_user_namespace(Path::new("true")).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// Runs this program again, with the same arguments, in a user namespace of its own, and waits for it. Returns its
/// exit code, 1 if a signal killed it or there may be no user namespace; either has said why.
///
/// # Errors
/// It is there already and may create no namespace all the same, or cannot be started.
pub fn again_with_privilege() -> io::Result<u8> {
    if env::var_os(MARK).is_some() {
        let error = "no network namespaces, not even in a user namespace: run it as root";
        return Err(io::Error::other(error));
    }
    let program = env::current_exe()?;
    let status = in_user_namespace(&program).args(env::args_os().skip(1)).status()?;
    Ok(status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1)))
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
    let program = env::current_exe().expect("a process knows its program");
    let mut command = in_user_namespace(&program);
    run_test(
        &mut command,
        test,
        "in a user namespace (run the tests as root, or allow user namespaces)",
    );
}
