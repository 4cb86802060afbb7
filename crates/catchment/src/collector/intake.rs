//! The receiving thread of a session: from the ring to the workers.
//!
//! It spins a little, then sleeps until the source rings; where no provider rings, it looks again
//! after growing times. It holds no lock and posts nothing.
use super::{block::HeldBlock, stream::Stream, workers::Queue};
use crate::{session::check::NUMBER_MAX, source::FRAME_BYTES_MAX};
use catchment_transfer::{
    BlockHeader, Naps, PeerMisbehaved, ReceivedBlock, Receiver, Step, WaitPolicy, Waiter,
    order::InOrder,
};
use catchment_verbs::Watch;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Looks at the ring before the thread sleeps: some microseconds, in which the next block of a
/// burst comes.
const SPIN_POLLS: u32 = 200;
/// How long it sleeps at most before it looks whether the session still lives.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A stream of the session and its order.
pub(super) struct Lane {
    pub(super) order: InOrder<HeldBlock>,
    pub(super) stream: Arc<Stream>,
    /// Packet numbers missing between what the collector had and where the stream begins.
    pub(super) lost: u64,
    pub(super) seen: Arc<Seen>,
}

/// How far an order is, as other threads see it.
pub(super) struct Seen {
    /// The order's next packet number.
    pub(super) next_packet: AtomicU64,
    /// Blocks that wait for an earlier one.
    pub(super) early: AtomicUsize,
}

impl Seen {
    /// Of a stream that begins with this packet number.
    pub(super) fn new(first_packet: u64) -> Arc<Seen> {
        Arc::new(Seen {
            next_packet: AtomicU64::new(first_packet),
            early: AtomicUsize::new(0),
        })
    }

    fn note<B>(&self, order: &InOrder<B>) {
        self.next_packet
            .store(order.next_packet(), Ordering::Release);
        self.early.store(order.early(), Ordering::Release);
    }
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
    /// A number that no message of the session could name.
    #[error("a block has packet number {0}; numbers end at {NUMBER_MAX}")]
    Number(u64),
    /// A frame larger than any source may send.
    #[error("a block belongs to a frame of {0} bytes; {FRAME_BYTES_MAX} are possible")]
    FrameBytes(u64),
}

/// The running thread. Dropping it lets the thread end, without waiting.
pub(super) struct Intake {
    thread: Option<JoinHandle<Result<(), IntakeError>>>,
    stop: Arc<AtomicBool>,
    watch: Option<Arc<dyn Watch>>,
}

impl Intake {
    /// Starts the thread. It looks at least this often while frames come and nobody rings; zero:
    /// all the time.
    pub(super) fn start(
        receiver: Receiver,
        lanes: Vec<Lane>,
        queue: Arc<Queue>,
        look_every: Duration,
    ) -> std::io::Result<Intake> {
        let watch = receiver.watch();
        let stop = Arc::new(AtomicBool::new(false));
        let mut run = Run {
            receiver,
            watch: watch.clone(),
            lanes,
            queue,
            stop: stop.clone(),
            look_every,
        };
        let thread = std::thread::Builder::new()
            .name("catchment-recv".to_owned())
            .spawn(move || run.run())?;
        Ok(Intake {
            thread: Some(thread),
            stop,
            watch,
        })
    }

    /// Whether the thread has ended by itself, because the source misbehaved.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Takes what is committed in the ring, then ends.
    pub(super) fn end(mut self) -> Result<(), IntakeError> {
        self.tell_to_end();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        thread.join().unwrap_or_else(|_| {
            tracing::error!("a receiving thread panicked");
            Ok(())
        })
    }

    fn tell_to_end(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(watch) = &self.watch {
            watch.wake();
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.tell_to_end();
    }
}

struct Run {
    receiver: Receiver,
    /// Rings when the source has written; `None` where no provider does.
    watch: Option<Arc<dyn Watch>>,
    lanes: Vec<Lane>,
    queue: Arc<Queue>,
    stop: Arc<AtomicBool>,
    look_every: Duration,
}

impl Run {
    /// Receives until told to end or the source misbehaves. Blocks that wait for earlier ones stay
    /// unreleased then: the source still has them, and a release would say that they arrived.
    fn run(&mut self) -> Result<(), IntakeError> {
        let result = self.receive();
        for lane in &mut self.lanes {
            lane.order.take_early().for_each(HeldBlock::abandon);
        }
        result
    }

    fn receive(&mut self) -> Result<(), IntakeError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut waiter = Waiter::new(self.policy(), cores);
        loop {
            // Also while blocks come: a source that never stops must not keep its session alive.
            if self.stop.load(Ordering::Acquire) {
                return self.drain();
            }
            match self.receiver.poll()? {
                Some(block) => {
                    waiter.found();
                    self.take(block)?;
                }
                None => match waiter.empty() {
                    Step::Spin => std::hint::spin_loop(),
                    Step::Yield => std::thread::yield_now(),
                    // What the wait policy asks for.
                    Step::Sleep(time) => std::thread::sleep(time),
                    Step::Block => self.sleep()?,
                },
            }
        }
    }

    fn policy(&self) -> WaitPolicy {
        let spin_polls = SPIN_POLLS;
        match self.watch {
            Some(_) => WaitPolicy::Doorbell { spin_polls },
            None if self.look_every.is_zero() => WaitPolicy::Spin,
            None => WaitPolicy::Nap {
                spin_polls,
                naps: Naps::default().at_most(self.look_every),
            },
        }
    }

    fn sleep(&mut self) -> Result<(), IntakeError> {
        let Some(watch) = self.watch.clone() else {
            return Ok(());
        };
        watch.arm();
        if let Some(block) = self.receiver.poll()? {
            watch.disarm();
            return self.take(block);
        }
        if !self.stop.load(Ordering::Acquire)
            && let Err(error) = watch.wait(LOOK_AGAIN)
        {
            tracing::warn!(%error, "cannot sleep on the doorbell");
            // Without a doorbell there is nothing to wait for but time.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The source may be gone in the middle of anything: what it committed counts, also if it did
    /// not live to say so in the status bytes. It may also be alive and go on: once around the ring
    /// finds what was there before; the rest stays unreleased, for the next session.
    fn drain(&mut self) -> Result<(), IntakeError> {
        for _ in 0..self.receiver.layout().blocks() {
            let Some(block) = self.receiver.drain()? else {
                break;
            };
            self.take(block)?;
        }
        Ok(())
    }

    fn take(&mut self, block: ReceivedBlock) -> Result<(), IntakeError> {
        let header = *block.header();
        check_limits(&header)?;
        let streams = self.lanes.len();
        let Some(lane) = self.lanes.get_mut(header.stream as usize) else {
            return Err(IntakeError::Stream {
                stream: header.stream,
                streams,
            });
        };
        let block = HeldBlock::new(block, lane.stream.device().metrics());
        let tally = lane.order.push(header, block, |block| {
            if lane.stream.push(block) {
                self.queue.schedule(lane.stream.clone());
            }
        });
        lane.seen.note(&lane.order);
        lane.stream.device().count(&tally);
        Ok(())
    }
}

/// What the format allows and no source may send.
fn check_limits(header: &BlockHeader) -> Result<(), IntakeError> {
    if header.packet_number >= NUMBER_MAX {
        return Err(IntakeError::Number(header.packet_number));
    }
    if header.frame_bytes > FRAME_BYTES_MAX as u64 {
        return Err(IntakeError::FrameBytes(header.frame_bytes));
    }
    Ok(())
}
