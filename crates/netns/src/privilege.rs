//! The privilege to create namespaces.
use super::Namespace;
use super::process::run_test;
use std::process::Command;
use std::{env, io};

/// Set in a process that was started with privilege, so that it does not start another.
const MARK: &str = "CATCHMENT_NETNS_PRIVILEGED";

/// Returns whether this process may create network namespaces.
pub fn has_privilege() -> bool {
    Namespace::new().is_ok()
}

/// Returns a command that runs this program in a user namespace of its own.
fn in_user_namespace() -> io::Result<Command> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount"]).arg(env::current_exe()?);
    command.env(MARK, "1");
    Ok(command)
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
    let status = in_user_namespace()?.args(env::args_os().skip(1)).status()?;
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
    let mut command = in_user_namespace().expect("a process knows its program");
    run_test(
        &mut command,
        test,
        "in a user namespace (run the tests as root, or allow user namespaces)",
    );
}
