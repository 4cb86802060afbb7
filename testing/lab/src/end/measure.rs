//! Measurements between two ends: how fast WRITEs go, how long a small one takes, and what that
//! costs the machine that both ends are on.
use super::{Measured, PingPong, Place, Stream, Trips};
use anyhow::{Context as _, Result, ensure};
use catchment_conformance::Side;
use catchment_perf::flow::{Flow, Requests};
use catchment_perf::{Amount, Connection, Operation, PerfError, Queue, Waiting, ping_pong, stats};
use catchment_verbs::{Mr, RemoteAddr};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Every so many requests of a stream one is signaled. Each is posted by a call of its own.
const SIGNALED: u32 = 16;

const PATIENCE: Duration = Duration::from_secs(60);
const SMALL_BYTES: usize = 64;

/// Duration of a tick of the kernel's clock for processor time, as /proc has it everywhere.
const TICK: Duration = Duration::from_millis(10);

struct Lent<'a> {
    side: &'a mut Side,
    memory: &'a dyn Mr,
    sends: Queue,
    receives: Queue,
}

impl<'a> Lent<'a> {
    fn new(side: &'a mut Side, memory: &'a dyn Mr) -> Self {
        let queue = |cq| Queue::new(Arc::clone(cq), Arc::clone(&side.channel));
        let (sends, receives) = (queue(&side.send_cq), queue(&side.recv_cq));
        Self { side, memory, sends, receives }
    }

    fn connection(&mut self, place: Place, bytes: usize, waiting: Waiting) -> Connection<'_> {
        let Place { addr, rkey } = place;
        Connection {
            qp: &mut *self.side.qp,
            sends: &self.sends,
            receives: &self.receives,
            memory: self.memory,
            peer: RemoteAddr { addr, rkey },
            context: &*self.side.context,
            waiting,
            bytes: bytes as u64,
            inline_bytes: SMALL_BYTES as u64,
            // Its own thread, or the kernel, does the provider's work.
            polls: false,
        }
    }
}

impl Stream {
    /// Posts WRITEs for the time, sleeping while the queue is full, and waits for the last signaled one.
    pub(super) fn run(self, side: &mut Side, memory: &dyn Mr) -> Result<Measured> {
        ensure!(self.bytes > 0 && self.bytes <= memory.bytes(), "no length");
        let mut lent = Lent::new(side, memory);
        let connection = lent.connection(self.place, self.bytes, Waiting::Sleep);
        let requests = Requests {
            operation: Operation::Write,
            outstanding: u32::try_from(self.outstanding)?,
            batch: 1,
            batches_per_signal: SIGNALED,
            places: connection.places(),
        };
        let mut flow = Flow::new(connection, requests)?;
        let busy = busy_time()?;
        let sent = flow.run(Duration::from_millis(self.millis), u64::MAX)?;
        Ok(Measured {
            bytes: sent.requests * self.bytes as u64,
            wall_ns: nanoseconds(sent.time),
            busy_ns: nanoseconds(busy_time()? - busy),
        })
    }
}

impl PingPong {
    /// Half of the median round trip; of the end that answers, nothing. And switches. The memory of both
    /// ends must begin with zeros.
    pub(super) fn run(self, side: &mut Side, memory: &dyn Mr) -> Result<Trips> {
        let before = switches()?;
        let mut lent = Lent::new(side, memory);
        let connection = lent.connection(self.place, SMALL_BYTES, Waiting::Yield);
        let mut ends = ping_pong::PingPong::new(connection, Operation::Write);
        let mut trips = Vec::new();
        if self.asks {
            let none = Amount::Iterations(0);
            trips = ends.ask(none, Amount::Iterations(self.rounds))?;
        } else {
            let over = Instant::now() + PATIENCE;
            ends.answer(&mut || {
                if Instant::now() < over {
                    return Ok(());
                }
                Err(PerfError::Failed(format!("no end came in {PATIENCE:?}")))
            })?;
        }
        Ok(Trips {
            write_ns: stats::percentile(&trips, 0.5) as u64,
            switches: switches()? - before,
        })
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
    Some((0..ticks.len().min(8)).filter(is_busy).map(|at| ticks[at]).sum())
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
