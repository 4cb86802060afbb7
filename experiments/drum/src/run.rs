//! The machine that numbers belong to.
use serde::Serialize;
use std::fs;
use std::process::Command;

/// The first row.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    what: &'static str,
    commit: Option<String>,
    machine: Option<String>,
    cores: usize,
    /// Processes that wanted to run, one-minute mean.
    load: Option<f64>,
    length: &'static str,
    build: &'static str,
}

impl Run {
    pub(crate) fn detect(full: bool) -> Self {
        let cpu = field("/proc/cpuinfo", "model name");
        let load = fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
        let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok();
        let commit = commit.filter(|output| output.status.success());
        Self {
            what: "run",
            commit: commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            machine: cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load,
            length: if full { "full" } else { "quick" },
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Most memory that this process has had, in bytes; `None` where the kernel does not say.
pub(crate) fn peak_bytes() -> Option<u64> {
    let text = field("/proc/self/status", "VmHWM")?;
    let kilobytes: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
