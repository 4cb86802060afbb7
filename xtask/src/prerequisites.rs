//! What the tests need besides Rust: found, or installed where that needs no password.
use crate::run;
use anyhow::{Context as _, Result, bail, ensure};
use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

/// Programs that tests run, their Debian packages, and what they are used for.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("cc", "gcc", "headers of C libraries"),
    ("ffmpeg", "ffmpeg", "compressed clips as input"),
    ("etcd", "etcd-server", "who leads among transmission controllers"),
    ("redis-server", "redis-server", "a service at the other end of a tunnel"),
    ("redis-benchmark", "redis-tools", "its clients"),
    ("ip", "iproute2", "network namespaces"),
    ("nft", "nftables", "a host that drops some packets"),
    ("tshark", "tshark", "an independent decoder of our packets"),
];

const FILES: &[(&str, &str)] = &[
    // Our declarations of libibverbs are compared with it.
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
];

/// Components of the Rust toolchain: the subcommand of cargo, and the name in rustup.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn provide(folder: &Path) -> Result<()> {
    for (subcommand, component) in COMPONENTS {
        ensure_component(folder, subcommand, component)?;
    }
    for (name, _, used_for) in PROGRAMS.iter().filter(|(name, ..)| !on_path(name)) {
        println!("{name} is missing: the tests use it for {used_for}");
    }
    let programs = PROGRAMS.iter().map(|(name, package, _)| (*name, *package));
    provide_packages(&programs.chain(FILES.iter().copied()).collect::<Vec<_>>())
}

/// Installs the packages of those files, or programs in the path, that are missing.
pub(crate) fn provide_packages(files: &[(&str, &str)]) -> Result<()> {
    let is_there = |file: &str| Path::new(file).exists() || on_path(file);
    let absent = || files.iter().filter(|(file, _)| !is_there(file));
    let packages: Vec<_> = absent().map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    println!("missing: {}", packages.join(", "));
    install(&packages)?;
    let still: Vec<_> = absent().map(|(file, _)| *file).collect();
    ensure!(
        still.is_empty(),
        "{still:?} not found after installation: check PATH; this recipe supports Debian 12 on x86-64"
    );
    Ok(())
}

fn ensure_component(folder: &Path, subcommand: &str, component: &str) -> Result<()> {
    let mut probe = run::cargo(folder, &[subcommand, "--version"]);
    if probe.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
        return Ok(());
    }
    println!("{component} is missing");
    let mut rustup = Command::new("rustup");
    rustup.args(["component", "add", component]).current_dir(folder);
    run::succeed(&mut rustup)
        .with_context(|| format!("type: rustup component add {component} (or install it)"))
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Installs Debian packages as root, or by sudo if it needs no password.
fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("type: sudo apt-get install {}", packages.join(" "));
    let Some(prefix) = root_prefix().filter(|_| on_path("apt-get")) else { bail!(by_hand) };
    // The package lists of a fresh container are empty; those of a laptop are often old.
    run::succeed(&mut apt(&prefix, &["update", "-qq"])).context(by_hand.clone())?;
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(packages);
    run::succeed(&mut apt(&prefix, &words)).context(by_hand)
}

fn apt(prefix: &[&str], words: &[&str]) -> Command {
    let all = prefix.iter().chain(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    let mut all = all.chain(words);
    let mut command = Command::new(all.next().copied().unwrap_or("env"));
    command.args(all);
    command
}

fn root_prefix() -> Option<Vec<&'static str>> {
    if succeeds("sh", &["-c", "test \"$(id -u)\" = 0"]) {
        return Some(Vec::new());
    }
    succeeds("sudo", &["-n", "true"]).then(|| vec!["sudo", "-n"])
}

fn succeeds(program: &str, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_up_in_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program-anywhere"));
    }

    #[test]
    fn the_command_that_installs_is_for_root_or_sudo() {
        let words = ["install", "-y", "ffmpeg"];
        let ours = "env DEBIAN_FRONTEND=noninteractive apt-get install -y ffmpeg";
        assert_eq!(run::shown(&apt(&[], &words)), ours);
        assert_eq!(run::shown(&apt(&["sudo", "-n"], &words)), format!("sudo -n {ours}"));
    }
}
