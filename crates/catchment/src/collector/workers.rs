//! Threads that carry frames to the sinks.
use super::stream::{Stream, Turn};
use crossbeam_channel::{Receiver, Sender};
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long a stream rests after its sink refused a frame, and how often idle workers look
/// whether they shall end.
const REST: Duration = Duration::from_millis(100);
/// How often an ending pool looks whether its threads have ended.
const LOOK: Duration = Duration::from_millis(2);

/// A pool of worker threads.
pub(super) struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// The streams that wait for a worker. A stream is in it at most once.
pub(super) struct Queue {
    ready: Receiver<Arc<Stream>>,
    add: Sender<Arc<Stream>>,
    resting: Mutex<Vec<(Instant, Arc<Stream>)>>,
    ending: AtomicBool,
    /// No more frames go to the sinks.
    over: AtomicBool,
}

impl Workers {
    /// Starts `threads` workers.
    pub(super) fn start(threads: usize) -> io::Result<Workers> {
        let (add, ready) = crossbeam_channel::unbounded();
        let queue = Arc::new(Queue {
            ready,
            add,
            resting: Mutex::default(),
            ending: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let threads = (0..threads)
            .map(|i| {
                let queue = queue.clone();
                std::thread::Builder::new()
                    .name(format!("catchment-work{i}"))
                    .spawn(move || queue.run())
            })
            .collect::<io::Result<_>>()?;
        Ok(Workers { queue, threads })
    }

    /// Where to put streams that have blocks.
    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Lets the workers finish what waits, at most until `deadline`, then ends them. Frames that a
    /// sink refuses or holds up to the end are given up and said so; their source still has them.
    /// A thread that is stuck in a sink is left to itself: it ends when the sink returns, and
    /// calls it no more.
    pub(super) fn end(self, deadline: Instant) {
        self.queue.ending.store(true, Ordering::Release);
        let ended = |threads: &[JoinHandle<()>]| threads.iter().all(JoinHandle::is_finished);
        while !ended(&self.threads) && Instant::now() < deadline {
            // A thread cannot be joined with a time limit: look again.
            std::thread::sleep(LOOK);
        }
        self.queue.over.store(true, Ordering::Release);
        for thread in self.threads {
            if !thread.is_finished() {
                tracing::error!("a sink does not return; its thread is left behind");
            } else if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
        let resting: Vec<_> = self.queue.resting().drain(..).collect();
        let waiting = resting.into_iter().map(|(_, stream)| stream);
        waiting
            .chain(self.queue.ready.try_iter())
            .for_each(|stream| give_up(&stream));
    }
}

impl Queue {
    /// Gives the stream to a worker.
    pub(super) fn schedule(&self, stream: Arc<Stream>) {
        // The queue holds a receiver itself, so the channel is never closed.
        let _ = self.add.send(stream);
    }

    fn run(&self) {
        loop {
            if let Ok(stream) = self.ready.recv_timeout(REST) {
                self.turn(stream);
            } else if self.ending.load(Ordering::Acquire) {
                return;
            }
            self.wake_rested();
        }
    }

    fn turn(&self, stream: Arc<Stream>) {
        let turn = stream.work(&self.over);
        if self.over.load(Ordering::Acquire) {
            return give_up(&stream);
        }
        match turn {
            Turn::Idle => {}
            Turn::More => self.schedule(stream),
            Turn::Stalled => self.resting().push((Instant::now() + REST, stream)),
        }
    }

    fn resting(&self) -> MutexGuard<'_, Vec<(Instant, Arc<Stream>)>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_rested(&self) {
        let now = Instant::now();
        let mut resting = self.resting();
        while let Some(i) = resting.iter().position(|(until, _)| *until <= now) {
            self.schedule(resting.swap_remove(i).1);
        }
    }
}

fn give_up(stream: &Stream) {
    let blocks = stream.give_up();
    if blocks > 0 {
        let device = stream.device().name();
        tracing::error!(%device, blocks, "the collector ended before the sink took these; a source that lives sends them again");
    }
}
