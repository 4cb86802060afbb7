//! Measurements between two ends: how fast WRITEs go, how long a small one takes, and what that
//! costs the machine that both ends are on.

use super::{Measured, Place, Trips};
use anyhow::{Context as _, Result, bail, ensure};
use catchment_conformance::Side;
use catchment_verbs::{Completion, Mr, Payload, RemoteAddr, SendOp, SendWr, Sge};
use std::fs;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Every so many requests one is signaled, and completions are taken.
const SIGNALED: u64 = 16;

/// A completion, or an answer of the peer, that does not come in this time never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a WRITE to and fro; the last eight are its number.
const SMALL_BYTES: usize = 64;
const NUMBER_AT: usize = SMALL_BYTES - 8;

/// Looks between two looks at the clock.
const LOOKS: u32 = 1024;

/// Duration of a tick of the kernel's clock for processor time, as /proc has it everywhere.
const TICK: Duration = Duration::from_millis(10);

/// A stream of WRITEs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) place: Place,
    pub(super) bytes: usize,
    pub(super) outstanding: u64,
    pub(super) time: Duration,
}

impl Stream {
    /// Posts WRITEs for the time, sleeping while the queue is full, and waits for the last one.
    pub(super) fn run(self, side: &mut Side, memory: &dyn Mr) -> Result<Measured> {
        ensure!(self.bytes > 0 && self.bytes <= memory.bytes(), "no length");
        let busy = busy_time()?;
        let begin = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while begin.elapsed() < self.time {
            while posted - done < self.outstanding {
                posted += 1;
                self.post(side, memory, posted)?;
            }
            done = wait(side)?.max(done);
        }
        // Those behind the last signaled one do not count.
        while done < posted / SIGNALED * SIGNALED {
            done = wait(side)?.max(done);
        }
        Ok(Measured {
            bytes: done * self.bytes as u64,
            wall_ns: nanoseconds(begin.elapsed()),
            busy_ns: nanoseconds(busy_time()? - busy),
        })
    }

    fn post(self, side: &mut Side, memory: &dyn Mr, number: u64) -> Result<()> {
        let slots = (memory.bytes() / self.bytes) as u64;
        let offset = number % slots * self.bytes as u64;
        let from = [Sge {
            addr: memory.addr() + offset,
            bytes: u32::try_from(self.bytes)?,
            lkey: memory.lkey(),
        }];
        let to = RemoteAddr {
            addr: self.place.addr + offset,
            rkey: self.place.rkey,
        };
        let request = SendWr::new(number, SendOp::Write(to), Payload::Sges(&from));
        post(side, request)
    }
}

/// WRITEs of 64 bytes into each other's memory, one at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PingPong {
    pub(super) place: Place,
    pub(super) rounds: u64,
    /// This end begins, and takes the time.
    pub(super) asks: bool,
}

impl PingPong {
    /// Half of the median round trip; of the end that answers, nothing. And switches.
    pub(super) fn run(self, side: &mut Side, memory: &dyn Mr) -> Result<Trips> {
        let before = switches()?;
        let mut trips = Vec::new();
        for number in 1..=self.rounds {
            let begin = Instant::now();
            if self.asks {
                self.write(side, number)?;
            }
            look(memory, number)?;
            if self.asks {
                trips.push(begin.elapsed());
            } else {
                self.write(side, number)?;
            }
            if number.is_multiple_of(SIGNALED) {
                poll(side)?;
            }
        }
        trips.sort_unstable();
        let median = trips.get(trips.len() / 2).copied().unwrap_or_default();
        Ok(Trips {
            write_ns: nanoseconds(median / 2),
            switches: switches()? - before,
        })
    }

    fn write(self, side: &mut Side, number: u64) -> Result<()> {
        let mut data = [0; SMALL_BYTES];
        data[NUMBER_AT..].copy_from_slice(&number.to_ne_bytes());
        let Place { addr, rkey } = self.place;
        let to = SendOp::Write(RemoteAddr { addr, rkey });
        post(side, SendWr::new(number, to, Payload::Inline(&data)))
    }
}

fn post(side: &mut Side, request: SendWr<'_>) -> Result<()> {
    let request = SendWr {
        signaled: request.wr_id.is_multiple_of(SIGNALED),
        ..request
    };
    Ok(side.qp.post_send(&[request])?)
}

/// Takes completions: the number of the newest request that is done, if there is any.
fn poll(side: &Side) -> Result<Option<u64>> {
    let mut done = [Completion::EMPTY; 16];
    let count = side.send_cq.poll(&mut done)?;
    let done = &done[..count];
    if let Some(failed) = done.iter().find(|done| done.result.is_err()) {
        bail!("a request failed: {failed:?}");
    }
    Ok(done.last().map(|done| done.wr_id))
}

/// The same, asleep until there is one.
fn wait(side: &Side) -> Result<u64> {
    let over = Instant::now() + PATIENCE;
    loop {
        if let Some(newest) = poll(side)? {
            return Ok(newest);
        }
        side.send_cq.req_notify(false);
        // One may have come before the request.
        if let Some(newest) = poll(side)? {
            return Ok(newest);
        }
        ensure!(Instant::now() < over, "no completion in {PATIENCE:?}");
        side.channel.wait(PATIENCE)?;
    }
}

/// Looks at the own memory until this number is there.
fn look(memory: &dyn Mr, number: u64) -> Result<()> {
    let over = Instant::now() + PATIENCE;
    let whole = memory.region().whole();
    loop {
        for _ in 0..LOOKS {
            if whole.load_u64(NUMBER_AT, Ordering::Acquire)? == number {
                return Ok(());
            }
            thread::yield_now();
        }
        ensure!(Instant::now() < over, "no number {number} in {PATIENCE:?}");
    }
}

/// How often a thread of this process has given its processor to another one, or to none.
fn switches() -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(task?.path().join("status"))?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let counts = lines.filter(|(name, _)| name.ends_with("ctxt_switches"));
        for (_, count) in counts {
            sum += count.trim().parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Times that a thread is woken, of which the median counts.
const WAKE_UPS: usize = 500;

/// How long it takes until a thread that was woken runs: half of the way to it and back.
pub(super) fn wake_up() -> Result<Duration> {
    let (ask, asked) = mpsc::channel();
    let (answer, answered) = mpsc::channel();
    let thread = thread::spawn(move || asked.iter().try_for_each(|()| answer.send(())));
    let mut times = Vec::with_capacity(WAKE_UPS);
    for _ in 0..WAKE_UPS {
        let begin = Instant::now();
        ask.send(())?;
        answered.recv()?;
        times.push(begin.elapsed());
    }
    drop(ask);
    let ended = thread.join();
    ensure!(matches!(ended, Ok(Ok(()))), "the other thread: {ended:?}");
    times.sort_unstable();
    Ok(times[WAKE_UPS / 2] / 2)
}

/// What all processors of this machine have worked since it was switched on, for programs and for
/// the kernel, whose work for a network belongs to no program.
fn busy_time() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = busy_ticks(&text).context("/proc/stat does not begin with the times of all")?;
    Ok(TICK * ticks)
}

/// All but the fourth and fifth number of the first line: idle, and idle while a disk works.
fn busy_ticks(stat: &str) -> Option<u32> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Option<Vec<u32>> = numbers.split_whitespace().map(|n| n.parse().ok()).collect();
    let ticks = ticks?;
    let is_busy = |at: &usize| !matches!(at, 3 | 4);
    // Those of guests are in those of programs already.
    Some(
        (0..ticks.len().min(8))
            .filter(is_busy)
            .map(|at| ticks[at])
            .sum(),
    )
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_no_work() {
        let stat = "cpu  10 20 30 4000 500 6 7 8 90 90\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(10 + 20 + 30 + 6 + 7 + 8));
        assert_eq!(busy_ticks("intr 5"), None);
    }
}
