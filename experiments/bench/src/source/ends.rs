//! The two processes, and how they are asked what they have done.
use crate::output;
use anyhow::{Context as _, Result};
use catchment::collector::Collector;
use catchment::source::{Device, DeviceSpec, Source};
use catchment_perf::ChildProcess;
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the source waits for the collector.
const PATIENCE: Duration = Duration::from_secs(30);
const BUCKETS_PER_OCTAVE: f64 = 8.0;
const BUCKETS: usize = 40 * 8;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Counts {
    frames: u64,
    /// Locks taken by the threads that frames go through.
    locks: u64,
    /// Locks taken by the others.
    background_locks: u64,
    waits: u64,
    times: Vec<u64>,
}

/// Starts this program again, in a role.
pub(super) fn start(name: &'static str, args: &[&str]) -> Result<ChildProcess> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("source-role").args(args).stdin(Stdio::piped());
    Ok(ChildProcess::start(name, &mut command)?)
}

fn counts(child: &mut ChildProcess) -> Result<Counts> {
    child.say("count")?;
    Ok(serde_json::from_str(&child.wait_for(|_| true)?)?)
}

/// What both processes did in a span of time.
pub(super) struct Window {
    span: Duration,
    source: [Counts; 2],
    collector: [Counts; 2],
}

impl Window {
    /// Counts what happens in this time.
    pub(super) fn measure(
        source: &mut ChildProcess,
        collector: &mut ChildProcess,
        span: Duration,
    ) -> Result<Self> {
        let begin = Instant::now();
        let before = (counts(source)?, counts(collector)?);
        // The length of the measurement.
        std::thread::sleep(span);
        let after = (counts(source)?, counts(collector)?);
        Ok(Self {
            span: begin.elapsed(),
            source: [before.0, after.0],
            collector: [before.1, after.1],
        })
    }

    pub(super) fn seconds(&self) -> f64 {
        self.span.as_secs_f64()
    }

    pub(super) fn frames(&self) -> f64 {
        difference(&self.collector, |c| c.frames)
    }

    /// Locks that the threads which frames go through took.
    pub(super) fn locks(&self) -> f64 {
        difference(&self.source, |c| c.locks) + difference(&self.collector, |c| c.locks)
    }

    /// Locks that all others took.
    pub(super) fn background_locks(&self) -> f64 {
        difference(&self.source, |c| c.background_locks)
            + difference(&self.collector, |c| c.background_locks)
    }

    pub(super) fn waits(&self) -> f64 {
        difference(&self.source, |c| c.waits)
    }

    /// Returns the time that this share of the frames did not exceed.
    pub(super) fn ns_per_frame(&self, share: f64) -> Option<f64> {
        let [before, after] = &self.source;
        let counts = after.times.iter().zip(&before.times);
        let counts: Vec<u64> = counts.map(|(after, before)| after - before).collect();
        let wanted = counts.iter().sum::<u64>() as f64 * share;
        let mut seen = 0.0;
        let bucket = counts.iter().position(|n| {
            seen += *n as f64;
            *n > 0 && seen >= wanted
        })?;
        Some(((bucket as f64 + 0.5) / BUCKETS_PER_OCTAVE).exp2())
    }
}

fn difference(counts: &[Counts; 2], of: impl Fn(&Counts) -> u64) -> f64 {
    (of(&counts[1]) - of(&counts[0])) as f64
}

pub(super) fn collect() -> Result<()> {
    let collector = Collector::builder("127.0.0.1:0").start()?;
    output::line(&collector.local_addr().to_string())?;
    serve(
        |_| {},
        || Counts {
            frames: collector.metrics().snapshot().totals.frames_received,
            ..Counts::default()
        },
    )?;
    collector.stop();
    Ok(())
}

/// What a filling thread counts. Only it writes.
#[derive(Default)]
struct Filled {
    frames: AtomicU64,
    waits: AtomicU64,
    times: Box<[AtomicU64]>,
}

#[derive(Default)]
struct Orders {
    /// Look again instead of sleeping while no block is free.
    stay_awake: AtomicBool,
    end: AtomicBool,
}

/// Sends with so many threads until standard input ends.
pub(super) fn fill(at: &str, threads: usize, bytes: usize) -> Result<()> {
    let name = |i| format!("cam{i}");
    let builder = (0..threads).fold(Source::builder(at), |builder, i| {
        builder.device(DeviceSpec::new(name(i)).frame_bytes(bytes))
    });
    let source = builder.patience(PATIENCE).connect()?;
    let orders = Arc::new(Orders::default());
    let mut all = Vec::new();
    let mut running = Vec::new();
    for i in 0..threads {
        let mut device = source.device(&name(i))?;
        let filled = Arc::new(Filled {
            times: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            ..Filled::default()
        });
        let (ours, orders) = (filled.clone(), orders.clone());
        all.push(filled);
        let thread = std::thread::Builder::new().name(format!("fill{i}"));
        let thread = thread.spawn(move || {
            let frame = vec![i as u8; bytes];
            while !orders.end.load(Ordering::Relaxed) {
                send(&mut device, &frame, &ours, &orders)?;
            }
            anyhow::Ok(())
        });
        running.push(thread.context("cannot start a filling thread")?);
    }
    let command = |command: &str| {
        let awake = command == "awake";
        orders.stay_awake.fetch_or(awake, Ordering::Relaxed);
    };
    serve(command, || counts_of(&all))?;
    orders.end.store(true, Ordering::Relaxed);
    for thread in running {
        thread.join().ok().context("a filling thread panicked")??;
    }
    source.close(PATIENCE)?;
    Ok(())
}

/// Sends one frame, once there is a block for it.
fn send(device: &mut Device, frame: &[u8], filled: &Filled, orders: &Orders) -> Result<()> {
    let begin = Instant::now();
    let Some(writer) = device.try_frame(frame.len())? else {
        if orders.stay_awake.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        } else {
            add(&filled.waits);
            device.wait_for_room(Duration::from_millis(100));
        }
        return Ok(());
    };
    writer.send_bytes(frame)?;
    let ns = begin.elapsed().as_nanos().max(1) as f64;
    let bucket = (ns.log2() * BUCKETS_PER_OCTAVE) as usize;
    add(&filled.times[bucket.min(BUCKETS - 1)]);
    add(&filled.frames);
    Ok(())
}

fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn counts_of(all: &[Arc<Filled>]) -> Counts {
    let sum = |of: &dyn Fn(&Filled) -> u64| all.iter().map(|filled| of(filled)).sum();
    Counts {
        frames: sum(&|f| f.frames.load(Ordering::Relaxed)),
        waits: sum(&|f| f.waits.load(Ordering::Relaxed)),
        times: (0..BUCKETS).map(|i| sum(&|f| f.times[i].load(Ordering::Relaxed))).collect(),
        ..Counts::default()
    }
}

/// Returns whether frames go through a thread of this name: filling, receive, worker and provider
/// threads, but not those that connect, speak with the peer and look after sessions.
pub(super) fn carries_frames(thread: &str) -> bool {
    let in_background = ["main", "catchment-ctl", "catchment-shm"];
    !in_background.contains(&thread) && !thread.starts_with("tokio")
}

/// Returns how many locks this process has taken for frames and otherwise, in a build that counts
/// them.
fn locks() -> (u64, u64) {
    #[cfg(feature = "count-locks")]
    let all = catchment_verbs::sync::acquisitions();
    #[cfg(not(feature = "count-locks"))]
    let all: Vec<(String, u64)> = Vec::new();
    all.iter().fold((0, 0), |(frames, background), (thread, locks)| {
        if carries_frames(thread) {
            (frames + locks, background)
        } else {
            (frames, background + locks)
        }
    })
}

/// Answers `count` and obeys other lines, until standard input ends.
fn serve(obey: impl Fn(&str), count: impl Fn() -> Counts) -> Result<()> {
    for line in std::io::stdin().lines() {
        let line = line?;
        if line == "count" {
            // First the locks: what counting takes is not the frames'.
            let (locks, background_locks) = locks();
            output::json(&Counts { locks, background_locks, ..count() })?;
        } else {
            obey(&line);
        }
    }
    Ok(())
}
