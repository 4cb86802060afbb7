//! The machine that a number belongs to.
use crate::sys;
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) virtual_machine: bool,
    /// Processes that wanted to run when the measurement began, one-minute mean.
    pub(crate) load_before: f64,
    pub(crate) memory_bytes: u64,
    /// Huge pages for shared memory, as the kernel is set.
    pub(crate) shmem_huge_pages: String,
    /// How the kernel chooses the processor's frequency; `unknown` where it does not.
    pub(crate) frequency_governor: String,
    pub(crate) source_core: usize,
    pub(crate) collector_core: usize,
    /// `release`, or `debug`, which nobody should quote.
    pub(crate) build: String,
    pub(crate) rustc: String,
    pub(crate) commit: String,
    pub(crate) date: String,
}

/// The first row of a bench: what its numbers belong to.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    what: &'static str,
    commit: String,
    machine: String,
    cores: usize,
    /// Processes that wanted to run, one-minute mean.
    load: f64,
    mode: &'static str,
    build: String,
}

impl Run {
    pub(crate) fn detect(mode: &'static str) -> Self {
        let Environment { commit, cpu, cores, load_before, build, .. } = Environment::detect();
        Self { what: "run", commit, machine: cpu, cores, load: load_before, mode, build }
    }

    pub(crate) fn line(&self) -> String {
        let Self { commit, machine, cores, load, build, .. } = self;
        format!("{build} build of {commit} on {machine}, {cores} cores, load {load}")
    }
}

impl Environment {
    pub(crate) fn detect() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            cpu: field(&cpuinfo, "model name"),
            cores: cores(),
            kernel: read("/proc/sys/kernel/osrelease"),
            virtual_machine: cpuinfo.contains(" hypervisor"),
            load_before: number(&read("/proc/loadavg")),
            memory_bytes: number(&field(&read("/proc/meminfo"), "MemTotal")) as u64 * 1024,
            shmem_huge_pages: chosen(&read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
            frequency_governor: or_unknown(read(
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            )),
            source_core: SOURCE_CORE,
            collector_core: collector_core(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            rustc: output_of("rustc", &["--version"]),
            commit: output_of("git", &["rev-parse", "--short", "HEAD"]),
            date: output_of("date", &["-u", "+%Y-%m-%d"]),
        }
    }

    pub(crate) fn line(&self) -> String {
        let vm = if self.virtual_machine { " (virtual machine)" } else { "" };
        format!(
            "{}, {} cores{vm}, Linux {}, {:.0} GiB, shared huge pages {}, load before {:.2}",
            self.cpu,
            self.cores,
            self.kernel,
            self.memory_bytes as f64 / f64::from(1 << 30),
            self.shmem_huge_pages,
            self.load_before,
        )
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) const SOURCE_CORE: usize = 0;

pub(crate) fn collector_core() -> usize {
    usize::from(cores() >= 2)
}

/// Time that the hypervisor gave to others, as a part of all time.
pub(crate) struct Steal(Option<(u64, u64)>);

impl Steal {
    pub(crate) fn start() -> Self {
        Self(sys::stolen_and_all_jiffies())
    }

    /// The part so far; `None` where the kernel does not say.
    pub(crate) fn part(&self) -> Option<f64> {
        let (stolen, all) = sys::stolen_and_all_jiffies()?;
        let (stolen_before, all_before) = self.0?;
        let all = all.checked_sub(all_before).filter(|all| *all > 0)?;
        Some(stolen.saturating_sub(stolen_before) as f64 / all as f64)
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn or_unknown(text: String) -> String {
    if text.is_empty() {
        return "unknown".to_owned();
    }
    text
}

fn field(text: &str, name: &str) -> String {
    text.lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn number(text: &str) -> f64 {
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// The word in brackets of a kernel setting such as `always [never]`.
fn chosen(text: &str) -> String {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or_else(|| "unknown".to_owned(), |(word, _)| word.to_owned())
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_texts_are_read() {
        assert_eq!(chosen("always within_size [never] deny"), "never");
        assert_eq!(field("MemTotal:   24684 kB\n", "MemTotal"), "24684 kB");
        assert_eq!(number("0.38 0.21"), 0.38);
        assert_eq!(field("", "model name"), "unknown");
    }
}
