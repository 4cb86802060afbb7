//! `source`: what a frame costs on its way from a filling thread to the sink.
//!
//! One source with a device for each of several filling threads, and a collector, each a process of
//! its own. Two windows are measured after a warm-up:
//!
//! - *full speed*: each thread sends as fast as blocks come free, and sleeps while none is. Rates,
//!   times and waits are of this one.
//! - *awake*: a thread that finds no free block looks again at once, so that both sides stay awake.
//!   Here locks and system calls are counted, of the threads of both processes that frames go
//!   through: the calls from outside, by strace. What a thread calls because it has nothing to do
//!   (`sched_yield`, `epoll_wait`), and what wakes a thread that had nothing to do, are told apart
//!   from what a frame needs that found a free block and an awake receiver.
//!
//! Locks are counted by the project's own lock types, in a build with the feature `count-locks`.
mod ends;
mod strace;

use crate::output;
use anyhow::{Context as _, Result, ensure};
use ends::Window;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use strace::Calls;

/// How long frames run before anything is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// Measure what a frame costs: time, locks, waits and system calls of several filling threads
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Filling threads, each with a device of its own
    #[arg(long, default_value_t = 12)]
    threads: usize,
    /// Bytes of a frame
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// Length of each window in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// One of the two processes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Role {
    /// Where the collector listens; without it, this process is the collector
    #[arg(long)]
    collector: Option<String>,
    #[arg(long, default_value_t = 12)]
    threads: usize,
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    threads: usize,
    frame_bytes: usize,
    /// Frames that reached the sink in a second.
    frames_per_s: f64,
    /// From asking for a block that was free to the end of sending it.
    ns_per_frame_p50: f64,
    /// The same, 99th percentile.
    ns_per_frame_p99: f64,
    /// Locks taken in both processes while both sides are awake; nothing in a build that does not
    /// count them.
    locks_per_frame: Option<f64>,
    /// Locks a second in threads that frames do not go through.
    background_locks_per_s: Option<f64>,
    /// System calls for frames that found a free block and an awake receiver; nothing without strace.
    syscalls_per_frame: Option<f64>,
    /// System calls that wake a receiver or a worker without work.
    wake_syscalls_per_frame: Option<f64>,
    /// System calls of threads without work.
    idle_syscalls_per_frame: Option<f64>,
    /// All of them, by name.
    syscalls_by_name: BTreeMap<String, f64>,
    /// Times that a filling thread had to sleep until a block came free.
    waits_per_frame: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut collector = ends::start("the collector", &[])?;
    let at = collector.wait_for(|_| true)?;
    let at = at.trim();
    let threads = options.threads.to_string();
    let bytes = options.bytes.to_string();
    let args = ["--collector", at, "--threads", &threads, "--bytes", &bytes];
    let mut source = ends::start("the source", &args)?;
    // Lets all threads get going.
    std::thread::sleep(WARM_UP);
    let window = Duration::from_secs_f64(options.seconds);
    let full_speed = Window::measure(&mut source, &mut collector, window)?;
    ensure!(full_speed.frames() > 0.0, "no frame reached the sink");
    source.say("awake")?;
    // Lets all threads see it.
    std::thread::sleep(WARM_UP);
    let processes = [source.id(), collector.id()];
    let (awake, calls) =
        strace::count(&processes, || Window::measure(&mut source, &mut collector, window))?;
    ensure!(awake.frames() > 0.0, "no frame reached the sink under strace");
    let report = report(options, &full_speed, &awake, calls)?;
    source.finish()?;
    collector.finish()?;
    output::either(options.json, &report, text)
}

fn report(
    options: &Options,
    full_speed: &Window,
    awake: &Window,
    calls: Option<Calls>,
) -> Result<Report> {
    let frames = full_speed.frames();
    let each = |n: u64| n as f64 / awake.frames();
    let sum = |of: fn(&Calls) -> &BTreeMap<String, u64>| {
        let calls = calls.as_ref();
        calls.map(|calls| each(of(calls).values().sum()))
    };
    Ok(Report {
        threads: options.threads,
        frame_bytes: options.bytes,
        frames_per_s: frames / full_speed.seconds(),
        ns_per_frame_p50: full_speed.ns_per_frame(0.5).context("no frame was timed")?,
        ns_per_frame_p99: full_speed.ns_per_frame(0.99).context("no frame was timed")?,
        locks_per_frame: cfg!(feature = "count-locks").then(|| awake.locks() / awake.frames()),
        background_locks_per_s: cfg!(feature = "count-locks")
            .then(|| awake.background_locks() / awake.seconds()),
        syscalls_per_frame: sum(|calls| &calls.frames),
        wake_syscalls_per_frame: sum(|calls| &calls.wakes),
        idle_syscalls_per_frame: sum(|calls| &calls.idle),
        syscalls_by_name: calls
            .iter()
            .flat_map(|calls| calls.frames.iter().chain(&calls.idle).chain(&calls.wakes))
            .map(|(name, n)| (name.clone(), each(*n)))
            .collect(),
        waits_per_frame: full_speed.waits() / frames,
    })
}

fn text(report: &Report) -> String {
    let calls = match (report.syscalls_per_frame, report.wake_syscalls_per_frame) {
        (Some(calls), Some(wakes)) => format!("{calls:.6} (to wake a sleeper: {wakes:.6})"),
        _ => "not counted: strace is not installed (apt-get install strace)".to_owned(),
    };
    let locks = match report.locks_per_frame {
        Some(locks) => format!("{locks:.6} locks"),
        None => "locks not counted (build with the feature count-locks)".to_owned(),
    };
    format!(
        "{} threads, frames of {} bytes: {:.0} a second, {:.0} ns each (99 %: {:.0} ns)\n\
         a frame: {locks}, {:.4} waits; {calls} system calls while both sides are awake",
        report.threads,
        report.frame_bytes,
        report.frames_per_s,
        report.ns_per_frame_p50,
        report.ns_per_frame_p99,
        report.waits_per_frame,
    )
}

/// Is one of the two processes, until its standard input ends.
pub(crate) fn role(role: &Role) -> Result<()> {
    match &role.collector {
        Some(at) => ends::fill(at, role.threads, role.bytes),
        None => ends::collect(),
    }
}
