//! What the two processes of a measurement do: verify, warm up, then timed batches.
//!
//! The source decides and tells the collector, which obeys. It asks whoever started it for a turn
//! before each step, so that nothing else is measured meanwhile. One clock serves both: a throughput
//! batch lasts from the source's first send to the collector's last receive. A batch in which a
//! polling role did not have its core is repeated, because it would measure the scheduler.
mod cameras;
mod collector;
mod programs;
mod source;
mod start;

use crate::control::Control;
use crate::job::{Hold, Job, Role, Workers};
use crate::link::cache_line::CacheLine;
use crate::link::{Link, Pace};
use crate::sys;
use anyhow::{Context as _, Result};
use catchment_perf::Meter;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// While the other role works, the source looks after its requests so often.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Order {
    /// Receive and compare blocks `0..count`, filled with [`pattern`].
    Verify(u64),
    /// Send back one block for each that comes, not timed: what a mechanism sets up when it is first
    /// used in this direction may need a thread that a real-time role would keep from running.
    Acquaint(u64),
    Stream(u64),
    /// Send back one block for each that comes.
    PingPong(u64),
    /// The same with a cache line, to know the floor at this moment.
    Floor(u64),
    /// Keep all blocks that come, and give them back one by one, a while apart.
    Sync {
        count: u64,
        blocks: usize,
    },
    OneWay(u64),
    /// Receive as fast as possible, and keep one block for a time.
    Hold(Hold),
    /// Keep each block as long as its worker needs for it, by chance from this seed.
    Process(Workers, u64),
    Done,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Report {
    end_ns: u64,
    cpu_ns: u64,
    core_share: f64,
    wrong_blocks: u64,
    /// Times of [`Order::Sync`] and [`Order::OneWay`], or counts of [`Order::Hold`].
    noted: Vec<u64>,
}

struct Source<'a, L> {
    job: &'a Job,
    starter: Control,
    peer: Control,
    link: L,
    floor: CacheLine,
    ticks: sys::Ticks,
    /// Of the timed part that is under way.
    meter: Option<Meter>,
    /// The least part of its core that a role had in the batch that is under way.
    core_share: Option<f64>,
}

struct Collector<'a, L> {
    job: &'a Job,
    peer: Control,
    link: L,
    floor: CacheLine,
}

/// Runs a role process: the job came as an argument, the other role is on standard input.
pub(crate) fn main(role: Role, job: &Job) -> Result<()> {
    sys::settle(match role {
        Role::Source => job.source_core,
        Role::Collector => job.collector_core,
    })?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    start::run(job, role, Control::new(UnixStream::from(socket)))
}

fn measure<L: Link>(job: &Job, role: Role, mut control: Control, link: L) -> Result<()> {
    let floor = CacheLine::new(job, role, &mut control)?;
    match role {
        Role::Collector => Collector { job, peer: control, link, floor }.obey(),
        Role::Source => {
            let starter = std::io::stdout().as_fd().try_clone_to_owned()?;
            Source {
                job,
                starter: Control::new(UnixStream::from(starter)),
                peer: control,
                link,
                floor,
                ticks: sys::Ticks::calibrate(),
                meter: None,
                core_share: None,
            }
            .report()
        }
    }
}

/// Returns the CPU time of this process over a span, and the part of its core that it got: all its
/// threads share one.
fn spent(meter: &Meter) -> (u64, f64) {
    let (wall, cpu) = meter.stop();
    let wall = wall.as_nanos().max(1) as f64;
    (cpu.as_nanos() as u64, (cpu.as_nanos() as f64 / wall).min(1.0))
}

fn pace_of(urgent: &Urgent) -> Pace {
    if urgent.0 { Pace::Urgent } else { Pace::Working }
}

struct Urgent(bool);

impl Urgent {
    fn begin(wanted: bool) -> Result<Self> {
        if wanted {
            sys::set_realtime(true)
                .context("real-time priority needs CAP_SYS_NICE; leave out --realtime")?;
        }
        Ok(Self(wanted))
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if self.0 {
            // Going down always works; if not, the parent still ends this process.
            let _ = sys::set_realtime(false);
        }
    }
}
