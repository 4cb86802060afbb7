//! System calls of threads of other processes, counted by strace.
use super::ends::carries_frames;
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// System calls by what they are for, each by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Made for a frame.
    pub(super) frames: BTreeMap<String, u64>,
    /// Made by a thread that has nothing to do.
    pub(super) idle: BTreeMap<String, u64>,
    /// Made to wake a thread of the peer, which had nothing to do.
    pub(super) wakes: BTreeMap<String, u64>,
}

/// What a thread without work calls: it lets others run, or sleeps until there is some.
const IDLE: &[&str] = &[
    "sched_yield", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "clock_nanosleep",
    "restart_syscall", "FUTEX_WAIT", "read of an eventfd",
];
/// What wakes one.
const WAKES: &[&str] = &["FUTEX_WAKE", "write of an eventfd"];

/// Runs `during` while the system calls of the threads of these processes that frames go through
/// are counted; not counted where there is no strace.
pub(super) fn count<T>(
    processes: &[u32],
    during: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<Calls>)> {
    let trace = std::env::temp_dir().join(format!("catchment-calls-{}", std::process::id()));
    let mut threads = Vec::new();
    for process in processes {
        threads.extend(threads_of(*process)?);
    }
    let mut command = Command::new("strace");
    command.args(["-y", "-s", "0", "-o"]).arg(&trace);
    for thread in &threads {
        command.args(["-p", thread]);
    }
    let strace = command.stderr(Stdio::piped()).spawn();
    let mut strace = match strace {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((during()?, None)),
        other => other.context("cannot start strace")?,
    };
    let said = strace.stderr.take().context("strace has no standard error")?;
    let mut said = BufReader::new(said).lines();
    for _ in &threads {
        let line = said.next().context("strace ended at once")??;
        ensure!(line.contains("attached"), "strace cannot trace: {line}");
    }
    let result = during();
    let pid = i32::try_from(strace.id()).ok().and_then(Pid::from_raw);
    rustix::process::kill_process(pid.context("strace has no id")?, Signal::INT)?;
    strace.wait()?;
    let text = std::fs::read_to_string(&trace).context("what strace wrote")?;
    let _ = std::fs::remove_file(&trace);
    Ok((result?, Some(parse(&text))))
}

/// Returns the ids of the threads that frames go through.
fn threads_of(process: u32) -> Result<Vec<String>> {
    let mut threads = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?;
        let id = thread.file_name().to_string_lossy().into_owned();
        let name = std::fs::read_to_string(thread.path().join("comm"))?;
        // The first thread has the name of the program.
        if id != process.to_string() && carries_frames(name.trim()) {
            threads.push(id);
        }
    }
    Ok(threads)
}

/// Reads lines such as `123 write(4<anon_inode:[eventfd]>, ""..., 8) = 8`.
fn parse(trace: &str) -> Calls {
    let mut calls = Calls::default();
    for line in trace.lines() {
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let Some((name, arguments)) = call.split_once('(') else { continue };
        // Signals, ends, and the second half of a call that another thread interrupted.
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let first = arguments.split(',').next().unwrap_or_default();
        let name = match name {
            "futex" if arguments.contains("FUTEX_WAIT") => "FUTEX_WAIT".to_owned(),
            "futex" if arguments.contains("FUTEX_WAKE") => "FUTEX_WAKE".to_owned(),
            "read" | "write" if first.contains("eventfd") => format!("{name} of an eventfd"),
            other => other.to_owned(),
        };
        let kind = if IDLE.contains(&name.as_str()) {
            &mut calls.idle
        } else if WAKES.contains(&name.as_str()) {
            &mut calls.wakes
        } else {
            &mut calls.frames
        };
        *kind.entry(name).or_default() += 1;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_by_what_they_are_for() {
        let trace = "7 sched_yield() = 0\n\
                     8 write(4<anon_inode:[eventfd]>, \"\"..., 8) = 8\n\
                     8 write(5</tmp/x>, \"\"..., 8) = 8\n\
                     7 futex(0x7f, FUTEX_WAIT_BITSET_PRIVATE, 3, NULL, 0xff <unfinished ...>\n\
                     8 futex(0x7f, FUTEX_WAKE_PRIVATE, 1) = 1\n\
                     7 <... futex resumed>) = 0\n\
                     8 --- SIGINT {si_signo=SIGINT} ---\n";
        let once = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect();
        let expected = Calls {
            frames: once(&["write"]),
            idle: once(&["sched_yield", "FUTEX_WAIT"]),
            wakes: once(&["write of an eventfd", "FUTEX_WAKE"]),
        };
        assert_eq!(parse(trace), expected);
    }
}
