//! Threads that carry frames to the sinks.
//!
//! Streams with blocks come in through [`WorkQueue::schedule`], each with the worker's half of it,
//! so a stream is in the hands of one worker at a time. Frames go out to the sinks. A worker that
//! finds nothing polls a little longer, then sleeps; it holds no lock while it works.
use super::primitives::search_polls;
use super::ready::ReadyQueue;
use super::resting::Resting;
use super::stream::{Job, Turn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Streams that may be ready at once without an allocation.
const READY: usize = 1024;
/// How often an ending pool checks whether its threads have ended.
const CHECK_ENDED: Duration = Duration::from_millis(2);

/// A pool of worker threads.
pub(super) struct Workers {
    queue: Arc<WorkQueue>,
    threads: Vec<JoinHandle<()>>,
}

/// The streams that wait for a worker. A stream is in it at most once.
pub(super) struct WorkQueue {
    ready: ReadyQueue<Job>,
    resting: Resting<Job>,
    ending: AtomicBool,
    /// No more frames go to the sinks.
    over: AtomicBool,
    /// Frames that no sink took.
    given_up: AtomicU64,
}

impl Workers {
    /// Starts `threads` workers.
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let queue = Arc::new(WorkQueue {
            ready: ReadyQueue::new(READY, search_polls()),
            resting: Resting::new(),
            ending: AtomicBool::new(false),
            over: AtomicBool::new(false),
            given_up: AtomicU64::new(0),
        });
        let threads = (0..threads)
            .map(|i| {
                let queue = queue.clone();
                std::thread::Builder::new()
                    .name(format!("catchment-work{i}"))
                    .spawn(move || queue.run())
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { queue, threads })
    }

    /// Returns where to put streams that have blocks.
    pub(super) fn queue(&self) -> &Arc<WorkQueue> {
        &self.queue
    }

    /// Lets the workers finish what waits, at most until `deadline`, then ends them. Frames that a
    /// sink refuses or holds up to the end are given up, which is logged; their source still has
    /// them. A thread that is stuck in a sink is left behind: it ends when the sink returns, and
    /// calls it no more. Returns how many frames were given up.
    pub(super) fn end(self, deadline: Instant) -> u64 {
        self.queue.ending.store(true, Ordering::Release);
        self.queue.ready.wake_all();
        let ended = |threads: &[JoinHandle<()>]| threads.iter().all(JoinHandle::is_finished);
        while !ended(&self.threads) && Instant::now() < deadline {
            // A thread cannot be joined with a time limit.
            std::thread::sleep(CHECK_ENDED);
        }
        self.queue.over.store(true, Ordering::Release);
        for thread in self.threads {
            if !thread.is_finished() {
                tracing::error!("a sink does not return; its thread is left behind");
            } else if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
        self.queue.resting.drain().into_iter().for_each(|job| self.queue.give_up(job));
        std::iter::from_fn(|| self.queue.ready.try_pop()).for_each(|job| self.queue.give_up(job));
        self.queue.given_up.load(Ordering::Acquire)
    }
}

impl WorkQueue {
    /// Hands the stream to a worker.
    pub(super) fn schedule(&self, job: Job) {
        self.ready.push(job);
    }

    fn run(&self) {
        loop {
            match self.ready.pop(|| self.deadline()) {
                Some(job) => self.turn(job),
                None if self.ending.load(Ordering::Acquire) => return,
                None => {}
            }
            self.resting.wake_due(|job| self.schedule(job));
        }
    }

    /// Until when an idle worker may sleep.
    fn deadline(&self) -> Option<Instant> {
        if self.ending.load(Ordering::Acquire) {
            return Some(Instant::now());
        }
        self.resting.first_due()
    }

    fn turn(&self, job: Job) {
        let Job { stream, delivery } = job;
        let turn = stream.work(delivery, &self.over);
        let (delivery, stalled) = match turn {
            Turn::Idle => return,
            Turn::More(delivery) => (delivery, false),
            Turn::Stalled(delivery) => (delivery, true),
        };
        let job = Job { stream, delivery };
        if self.over.load(Ordering::Acquire) {
            self.give_up(job);
        } else if stalled {
            self.resting.add(job);
            // Sleeping workers learn that there is something to wake up for.
            self.ready.wake_all();
        } else {
            self.schedule(job);
        }
    }

    fn give_up(&self, job: Job) {
        let Job { stream, mut delivery } = job;
        let frames = delivery.give_up();
        if frames > 0 {
            self.given_up.fetch_add(frames, Ordering::AcqRel);
            let device = &stream.device().name;
            tracing::error!(%device, frames, "the collector ended before the sink took these; a source that lives sends them again");
        }
    }
}
