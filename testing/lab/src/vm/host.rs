//! What the host must have, checked before anything starts, and the step into a namespace.

use super::shell;
use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("ip", "iproute2"),
    ("rdma", "iproute2"),
    ("nft", "nftables"),
    ("dpkg", "dpkg"),
    ("apt-get", "apt"),
    ("nice", "coreutils"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("python3", "python3"),
];

/// Folders of programs; those of the superuser are not in everybody's `PATH`.
const FOLDERS: &[&str] = &["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The interpreter that the guest uses too, and what it must be able to import.
const PYVERBS: &[&str] = &["/usr/bin/python3", "-c", "import pyverbs.qp"];

const TUN: &str = "/dev/net/tun";

pub(crate) fn check() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the guest runs the host's programs on an x86-64 kernel: use an x86-64 Linux host"
    );
    let missing: Vec<_> = PROGRAMS
        .iter()
        .filter(|(name, _)| !is_program(name))
        .map(|(name, package)| format!("{name} (package {package})"))
        .collect();
    ensure!(
        missing.is_empty(),
        "missing: {}; on Debian 12 or newer `cargo xtask lab rxe` installs them",
        missing.join(", ")
    );
    shell::output(PYVERBS).context("the guest's agent needs the package python3-pyverbs")?;
    OpenOptions::new().read(true).write(true).open(TUN).with_context(|| {
        format!("cannot open {TUN}: in a container, add --device {TUN} and run as root")
    })?;
    shell::output(&["unshare", "--net", "true"]).context(
        "cannot make a network namespace: run as root; in a container, add --cap-add SYS_ADMIN \
         --cap-add NET_ADMIN",
    )?;
    Ok(())
}

fn is_program(name: &str) -> bool {
    FOLDERS.iter().any(|folder| Path::new(folder).join(name).is_file())
}

/// Runs this program again with `arguments`, in a network namespace of its own, instead of
/// returning. The process stays the same, so signals reach it as before.
pub(crate) fn enter_namespace(arguments: &[OsString]) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the running program")?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg(program).args(arguments);
    bail!("cannot start unshare: {}", command.exec())
}

#[derive(Debug)]
pub(crate) struct Turn {
    _lock: File,
}

/// Makes sure that one guest runs at a time: emulation takes all processors it gets.
pub(crate) fn take_turn(cache: &Path) -> Result<Turn> {
    std::fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    if file.try_lock().is_err() {
        eprintln!("another lab runs here: waiting for its end");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(Turn { _lock: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_folders_of_programs() {
        assert!(is_program("sh"));
        assert!(!is_program("no-such-program-anywhere"));
    }
}
