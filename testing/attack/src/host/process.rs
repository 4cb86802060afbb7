//! Processes of a case: what they print, what they use, how they end.
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that does other work too.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(5);

/// Polls until `look` finds something.
pub(crate) fn poll<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if start.elapsed() > limit {
            return None;
        }
        // What other processes do has no event.
        std::thread::sleep(POLL);
    }
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    poll(LIMIT, || is_so().then_some(())).with_context(|| format!("waited in vain until {what}"))
}

/// Pauses an attack or a measurement; nothing is waited for.
pub(crate) fn pass(time: Duration) {
    // The time itself is what is wanted.
    std::thread::sleep(time);
}

/// What a process uses, as /proc tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) rss_kib: u64,
    pub(crate) peak_kib: u64,
    pub(crate) fds: usize,
    pub(crate) threads: u64,
    pub(crate) cpu_s: f64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let digits = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            digits.unwrap_or(0)
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> =
            stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
        Self {
            rss_kib: number("VmRSS:"),
            peak_kib: number("VmHWM:"),
            fds: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
            threads: number("Threads:"),
            cpu_s: (ticks(11) + ticks(12)) / 100.0,
        }
    }
}

impl Usage {
    /// What a process and its child use, as far as a program in a namespace of its own is one.
    pub(crate) fn of_tree(pid: u32) -> Self {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let child = children.unwrap_or_default().split_whitespace().find_map(|id| id.parse().ok());
        child.map_or(Self::of(pid), Self::of)
    }
}

/// A process whose output goes to files. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    files: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &str) -> Result<Self> {
        let files = free_name(folder, name);
        let file = |ending| File::create(files.with_extension(ending));
        command.stdout(file("out")?).stderr(file("err")?).process_group(0);
        command.stdin(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, files })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(self.files.with_extension("out")).unwrap_or_default()
    }

    pub(crate) fn stderr(&self) -> String {
        let text = fs::read(self.files.with_extension("err")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Both outputs, for messages that may stand in either.
    pub(crate) fn said(&self) -> String {
        self.stdout() + &self.stderr()
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.id())
    }

    /// The last event of this kind that was printed.
    pub(crate) fn event(&self, kind: &str) -> Option<Value> {
        let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
        self.stdout().lines().rev().filter_map(parse).find(|event| event["event"] == kind)
    }

    pub(crate) fn wait_event(&mut self, kind: &str) -> Result<Value> {
        let found = poll(LIMIT, || {
            self.event(kind)
                .map(Ok)
                .or_else(|| self.code().map(|code| self.event(kind).ok_or(code)))
        });
        match found {
            Some(Ok(event)) => Ok(event),
            Some(Err(code)) => bail!("no event {kind}: ended with {code}: {}", self.last_line()),
            None => bail!("no event {kind} in {} s: {}", LIMIT.as_secs(), self.last_line()),
        }
    }

    pub(crate) fn last_line(&self) -> String {
        let said = self.stderr();
        said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.id().cast_signed()) {
            // It may have ended by itself.
            let _ = kill_process(pid, signal);
        }
    }

    /// The exit code, or 128 and the signal, once it has ended.
    pub(crate) fn code(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok()??;
        status.code().or_else(|| status.signal().map(|signal| 128 + signal))
    }

    /// Waits for its end; none when that does not come.
    pub(crate) fn end_within(&mut self, limit: Duration) -> Option<i32> {
        poll(limit, || self.code())
    }

    pub(crate) fn finish(&mut self) -> Result<i32> {
        let line = |it: &Self| format!("did not end in {} s: {}", LIMIT.as_secs(), it.last_line());
        self.end_within(LIMIT).with_context(|| line(self))
    }

    /// Asks it to end.
    pub(crate) fn stop(&mut self) -> Result<i32> {
        self.signal(Signal::TERM);
        self.finish()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // With what it has started: an attack program runs below unshare(1), in the same group.
        if let Some(group) = Pid::from_raw(self.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn free_name(folder: &Path, name: &str) -> PathBuf {
    let numbered = (0..).map(|number| folder.join(format!("{name}-{number}.out")));
    numbered.into_iter().find(|path| !path.exists()).unwrap_or_default()
}
