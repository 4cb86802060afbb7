//! The receiving thread of a session: from the ring to the workers.
//!
//! It spins a little, then sleeps until the source rings. It holds no lock and posts nothing.
use super::{in_order::InOrder, stream::Stream, workers::Queue};
use catchment_transfer::{PeerMisbehaved, ReceivedBlock, Receiver, Step, WaitPolicy, Waiter};
use catchment_verbs::Watch;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Looks at the ring before the thread sleeps: some microseconds, in which the next block of a
/// burst comes.
const WAIT: WaitPolicy = WaitPolicy::Doorbell { spin_polls: 200 };
/// How long it sleeps at most before it looks whether the session still lives.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A stream of the session and its order.
pub(super) struct Lane {
    pub(super) order: InOrder<ReceivedBlock>,
    pub(super) stream: Arc<Stream>,
    /// Packet numbers missing between what the collector had and where the stream begins.
    pub(super) lost: u64,
    /// The order's next packet number, for other threads.
    pub(super) next_packet: Arc<AtomicU64>,
}

/// Why the thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum IntakeError {
    /// The source wrote what no correct source writes.
    #[error("{0}")]
    Misbehaved(#[from] PeerMisbehaved),
    /// A block of a stream that the session does not have.
    #[error("a block names stream {stream}; this session has {streams}")]
    Stream {
        /// The number in the block.
        stream: u32,
        /// Streams of the session, numbered from 0.
        streams: usize,
    },
}

/// The running thread.
pub(super) struct Intake {
    thread: JoinHandle<Result<(), IntakeError>>,
    stop: Arc<AtomicBool>,
    watch: Arc<dyn Watch>,
}

impl Intake {
    /// Starts the thread. `watch` is that of the ring's memory.
    pub(super) fn start(
        receiver: Receiver,
        watch: Arc<dyn Watch>,
        lanes: Vec<Lane>,
        queue: Arc<Queue>,
    ) -> std::io::Result<Intake> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut run = Run {
            receiver,
            watch: watch.clone(),
            lanes,
            queue,
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("catchment-recv".to_owned())
            .spawn(move || run.run())?;
        Ok(Intake {
            thread,
            stop,
            watch,
        })
    }

    /// Whether the thread has ended by itself, because the source misbehaved.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Takes what is committed in the ring, then ends.
    pub(super) fn end(self) -> Result<(), IntakeError> {
        self.stop.store(true, Ordering::Release);
        self.watch.wake();
        self.thread.join().unwrap_or_else(|_| {
            tracing::error!("a receiving thread panicked");
            Ok(())
        })
    }
}

struct Run {
    receiver: Receiver,
    watch: Arc<dyn Watch>,
    lanes: Vec<Lane>,
    queue: Arc<Queue>,
    stop: Arc<AtomicBool>,
}

impl Run {
    fn run(&mut self) -> Result<(), IntakeError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut waiter = Waiter::new(WAIT, cores);
        loop {
            match self.receiver.poll()? {
                Some(block) => {
                    waiter.found();
                    self.take(block)?;
                }
                None if self.stop.load(Ordering::Acquire) => return self.drain(),
                None => match waiter.empty() {
                    Step::Spin => std::hint::spin_loop(),
                    Step::Yield => std::thread::yield_now(),
                    Step::Sleep(time) => std::thread::sleep(time),
                    Step::Block => self.sleep()?,
                },
            }
        }
    }

    fn sleep(&mut self) -> Result<(), IntakeError> {
        self.watch.arm();
        if let Some(block) = self.receiver.poll()? {
            self.watch.disarm();
            return self.take(block);
        }
        if !self.stop.load(Ordering::Acquire)
            && let Err(error) = self.watch.wait(LOOK_AGAIN)
        {
            tracing::warn!(%error, "cannot sleep on the doorbell");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The source may be gone in the middle of anything: what it committed counts, also if it did
    /// not live to say so in the status bytes.
    fn drain(&mut self) -> Result<(), IntakeError> {
        while let Some(block) = self.receiver.drain()? {
            self.take(block)?;
        }
        Ok(())
    }

    fn take(&mut self, block: ReceivedBlock) -> Result<(), IntakeError> {
        let header = *block.header();
        let streams = self.lanes.len();
        let Some(lane) = self.lanes.get_mut(header.stream as usize) else {
            return Err(IntakeError::Stream {
                stream: header.stream,
                streams,
            });
        };
        let tally = lane.order.push(header, block, |block| {
            if lane.stream.push(block) {
                self.queue.schedule(lane.stream.clone());
            }
        });
        lane.next_packet
            .store(lane.order.next_packet(), Ordering::Release);
        lane.stream.device().count(&tally);
        Ok(())
    }
}
