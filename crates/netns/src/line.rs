//! What paths have in common that threads of this process make: a line that is busy for a time with each packet, and the threads.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread of a slower path goes before others: it takes little of a processor, while one of 1 Gbit/s would take it from
/// the ends.
const SLOW_BPS: u64 = 200_000_000;
/// How often a thread looks whether it is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A line with a queue before it.
#[derive(Debug)]
pub(crate) struct Line {
    rate_bps: u64,
    /// Bytes that may wait.
    queue_bytes: u64,
    /// When the last bit that was taken has left.
    free_at: Instant,
}

impl Line {
    pub(crate) fn new(rate_bps: u64, queue_bytes: u64) -> Self {
        Self { rate_bps: rate_bps.max(1), queue_bytes, free_at: Instant::now() }
    }

    /// Takes a packet that comes then; returns when it has left, or `None` if there is no room.
    pub(crate) fn take(&mut self, at: Instant, bytes: u64) -> Option<Instant> {
        let waits = self.free_at.saturating_duration_since(at);
        let waiting_bytes = (waits.as_secs_f64() * self.rate_bps as f64 / 8.0) as u64;
        if waiting_bytes + bytes > self.queue_bytes {
            return None;
        }
        let takes = Duration::from_nanos(bytes * 8_000_000_000 / self.rate_bps);
        self.free_at = self.free_at.max(at) + takes;
        Some(self.free_at)
    }
}

/// The threads of a path. Dropping them ends them.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    ended: Arc<AtomicBool>,
    all: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts one that takes turns, of which each returns whether there is another one.
    pub(crate) fn start(&mut self, rate_bps: u64, mut turn: impl FnMut() -> bool + Send + 'static) {
        let ended = Arc::clone(&self.ended);
        self.all.push(std::thread::spawn(move || {
            if rate_bps <= SLOW_BPS {
                go_first();
            }
            while !ended.load(Ordering::Relaxed) && turn() {}
        }));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.all.drain(..) {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// Lets the thread run before others where that is allowed: packets that it takes late come all at once, and would
/// seem to have been more than the queue takes.
fn go_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are a sched_param that outlives the call; 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
}
