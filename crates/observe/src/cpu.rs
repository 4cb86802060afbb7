//! Processor time and memory of this process or of another one, as the kernel accounts for them.
use super::snapshot::CpuSnapshot;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Samples closer together than this repeat the last percentage: the kernel accounts for other
/// processes in ticks of 10 ms.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Why a process could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The process ended, or its number now belongs to another process: its process id.
    #[error("process {0} is gone; its CPU time can no longer be read")]
    Gone(u32),
    /// The kernel's file could not be read.
    #[error("cannot read {}: {source}; is /proc mounted?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel's file does not have the form documented in proc(5).
    #[error("{} has an unexpected form: {line:?}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Its content.
        line: String,
    },
}

/// What a process used since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessUsage {
    /// Processor time of all its threads, user and kernel.
    pub cpu_s: f64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// When it started, in kernel ticks since boot: distinguishes it from a later process with the same
    /// id.
    start_ticks: u64,
}

/// Returns the memory that the kernel says this host has; `None` where it does not say.
pub fn host_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok().map(|kib: u64| kib << 10)
}

/// Returns what this process has used so far, with processor time in full resolution.
///
/// # Errors
/// [`CpuError::Read`] and [`CpuError::Form`] when `/proc` is missing or has an unknown form.
pub fn usage_of_self() -> Result<ProcessUsage, CpuError> {
    Ok(ProcessUsage {
        cpu_s: cpu_time().as_secs_f64(),
        ..read_stat(PathBuf::from("/proc/self/stat"))?
    })
}

/// Returns the processor time of this process, at most `ago` old. The kernel visits every thread to
/// compute it, so the many sources of one process share one reading.
pub fn cpu_time_of_self(ago: Duration) -> Duration {
    static LAST: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, time)) if at.elapsed() <= ago => time,
        _ => {
            let time = cpu_time();
            *last = Some((Instant::now(), time));
            time
        }
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns what process `pid` has used so far, with processor time in kernel ticks (10 ms).
///
/// # Errors
/// [`CpuError::Gone`] when there is no such process, else as [`usage_of_self`].
pub fn usage_of(pid: u32) -> Result<ProcessUsage, CpuError> {
    let usage = read_stat(PathBuf::from(format!("/proc/{pid}/stat")));
    usage.map_err(|error| if error.is_no_process() { CpuError::Gone(pid) } else { error })
}

impl CpuError {
    /// Returns whether the file was missing, or the process ended while it was read.
    fn is_no_process(&self) -> bool {
        let Self::Read { source, .. } = self else { return false };
        source.kind() == std::io::ErrorKind::NotFound
            || source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
    }
}

fn read_stat(path: PathBuf) -> Result<ProcessUsage, CpuError> {
    match std::fs::read_to_string(&path) {
        Ok(line) => parse_stat(&line).ok_or(CpuError::Form { path, line }),
        Err(source) => Err(CpuError::Read { path, source }),
    }
}

/// Parses the fields of proc(5) that are needed. The second one, the name, may hold spaces and
/// parentheses.
fn parse_stat(line: &str) -> Option<ProcessUsage> {
    let (_, after_name) = line.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // proc(5) counts from 1 and the first field here is its third.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)? + field(15)?;
    Some(ProcessUsage {
        cpu_s: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        rss_bytes: field(24)? * rustix::param::page_size() as u64,
        start_ticks: field(22)?,
    })
}

/// Measures one process repeatedly; each sample covers the time since the last one.
#[derive(Debug)]
pub struct CpuMeter {
    pid: Option<u32>,
    last: Option<(Instant, ProcessUsage)>,
    percent: f64,
}

impl CpuMeter {
    /// Creates a meter of this process, starting now.
    pub fn this_process() -> Self {
        Self::starting(None, usage_of_self().ok())
    }

    /// Creates a meter of process `pid`, starting now.
    ///
    /// # Errors
    /// As [`usage_of`].
    pub fn process(pid: u32) -> Result<Self, CpuError> {
        Ok(Self::starting(Some(pid), Some(usage_of(pid)?)))
    }

    fn starting(pid: Option<u32>, usage: Option<ProcessUsage>) -> Self {
        Self { pid, last: usage.map(|usage| (Instant::now(), usage)), percent: 0.0 }
    }

    /// Measures the use since the last sample. Within 50 ms of it, the last percentage is repeated.
    ///
    /// # Errors
    /// [`CpuError::Gone`] when the process ended since, else as [`usage_of`].
    pub fn sample(&mut self) -> Result<CpuSnapshot, CpuError> {
        let usage = self.pid.map_or_else(usage_of_self, usage_of)?;
        let now = Instant::now();
        if let (Some(pid), Some((_, last))) = (self.pid, &self.last)
            && last.start_ticks != usage.start_ticks
        {
            return Err(CpuError::Gone(pid));
        }
        self.advance(now, usage);
        Ok(CpuSnapshot {
            cpu_s: usage.cpu_s,
            cpu_percent: self.percent,
            rss_bytes: usage.rss_bytes,
        })
    }

    fn advance(&mut self, now: Instant, usage: ProcessUsage) {
        if let Some((then, last)) = &self.last {
            let elapsed = now - *then;
            if elapsed < INTERVAL_MIN {
                return;
            }
            self.percent = (usage.cpu_s - last.cpu_s).max(0.0) / elapsed.as_secs_f64() * 100.0;
        }
        self.last = Some((now, usage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_do_not_shift_the_fields() {
        let line = "42 (a) b) S 1 42 42 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 3 0 777 9999 10 18446744073709551615";
        let usage = parse_stat(line).unwrap();
        let hz = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(usage.cpu_s, 200.0 / hz);
        assert_eq!(usage.start_ticks, 777);
        assert_eq!(usage.rss_bytes, 10 * rustix::param::page_size() as u64);
    }

    #[test]
    fn a_short_line_is_an_error_not_a_panic() {
        assert!(parse_stat("42 (a) S 1 2").is_none());
        assert!(parse_stat("").is_none());
    }
}
