//! Requirements of the host, checked before anything starts, and entry into a namespace.
use super::shell;
use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The interpreter, which the guest also uses, and an import that must succeed.
const PYVERBS: &[&str] = &["/usr/bin/python3", "-c", "import pyverbs.qp"];

const TUN: &str = "/dev/net/tun";

pub(crate) fn check() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the guest runs the host's programs on an x86-64 kernel: use an x86-64 Linux host"
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

/// Replaces this program by itself with `arguments`, in a network namespace of its own. The process
/// stays the same, so signals still reach it. Returns only on errors.
pub(crate) fn enter_namespace(arguments: &[OsString]) -> Result<()> {
    let program = shell::this_program()?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg(program).args(arguments);
    bail!("cannot start unshare: {}", command.exec())
}

#[derive(Debug)]
pub(crate) struct Turn {
    _lock: File,
}

/// Takes the lock by which only one lab runs at a time: emulation uses all processors.
pub(crate) fn take_turn(cache: &Path) -> Result<Turn> {
    std::fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    if file.try_lock().is_err() {
        eprintln!("another lab is running here: waiting for its end");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(Turn { _lock: file })
}
