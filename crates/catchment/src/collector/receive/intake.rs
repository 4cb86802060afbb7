//! What a session's blocks go through: limits of the format, the order of each stream.
//!
//! Nothing here waits: [`SessionIntake::turn`] takes a few blocks and says how to go on.
use super::{Ended, WorkQueue};
use crate::collector::stream::Inlet;
use crate::format::FRAME_BYTES_MAX;
use crate::session::check::NUMBER_MAX;
use crate::session::collector_side::JUMP_MAX;
use crate::sink::CountedBlock;
use catchment_transfer::order::InOrder;
use catchment_transfer::{BlockHeader, PeerMisbehaved, ReceivedBlock, Receiver};
use catchment_verbs::Watch;
use catchment_verbs::wait::{BackoffPolicy, Step, WaitPolicy, Waiter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Polls of an empty ring before the session sleeps: some microseconds, in which the next block of a
/// burst comes.
const SPIN_POLLS: u32 = 200;
/// Blocks that a session gets before it is another one's turn.
const BLOCKS_A_TURN: u32 = 16;

/// A stream of the session and its order.
pub(in crate::collector) struct StreamIntake {
    pub(in crate::collector) order: InOrder<CountedBlock>,
    pub(in crate::collector) inlet: Inlet,
    pub(in crate::collector) progress: Arc<SharedProgress>,
}

/// How far an order is, as other threads see it.
pub(in crate::collector) struct SharedProgress {
    /// The order's next packet number.
    next_packet: AtomicU64,
    /// Blocks that wait for an earlier one.
    early: AtomicUsize,
    /// Set when some do, for the check of all streams.
    unsettled: Arc<AtomicBool>,
}

impl SharedProgress {
    /// Of a stream that begins with this packet number.
    pub(in crate::collector) fn new(first_packet: u64, unsettled: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            next_packet: AtomicU64::new(first_packet),
            early: AtomicUsize::new(0),
            unsettled,
        })
    }

    /// Returns the first packet number that was not handed on whole.
    pub(in crate::collector) fn next_packet(&self) -> u64 {
        self.next_packet.load(Ordering::Acquire)
    }

    /// Returns whether blocks wait for an earlier one.
    pub(in crate::collector) fn has_early(&self) -> bool {
        self.early.load(Ordering::Acquire) > 0
    }

    fn note<B>(&self, order: &InOrder<B>) {
        self.next_packet.store(order.next_packet(), Ordering::Release);
        let early = order.early();
        self.early.store(early, Ordering::Release);
        if early > 0 {
            self.unsettled.store(true, Ordering::Release);
        }
    }
}

/// Why a session's intake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::collector) enum IntakeError {
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
    /// A number that is so far ahead that it would use up those of the device.
    #[error(
        "a block has packet number {number}, too far ahead of {next}: {JUMP_MAX} may be left out"
    )]
    Jump {
        /// The number in the block.
        number: u64,
        /// The number that its stream waits for.
        next: u64,
    },
    /// A fault of this program, seen while it handled what the source wrote.
    #[error("receiving from it panicked")]
    Panicked,
    /// A frame larger than any source may send.
    #[error("a block belongs to a frame of {0} bytes; {FRAME_BYTES_MAX} are possible")]
    FrameBytes(u64),
}

/// The receiving end of a session.
pub(super) struct SessionIntake {
    pub(super) id: u64,
    receiver: Receiver,
    /// Rings when the source has written; `None` where no provider does.
    watch: Option<Arc<dyn Watch>>,
    streams: Vec<StreamIntake>,
    queue: Arc<WorkQueue>,
    waiter: Waiter,
    /// How many more blocks are polled for before an ending session ends.
    draining: Option<u32>,
    ending: Option<oneshot::Sender<Ended>>,
}

/// What a turn of a session found, and when it wants the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Blocks: at once.
    Found,
    /// Nothing yet: soon, after [`std::hint::spin_loop`].
    Spin,
    /// Nothing yet: soon, after [`std::thread::yield_now`].
    Yield,
    /// Nothing: after this time.
    Nap(Duration),
    /// Nothing, and the watch is armed: when it is rung.
    Armed,
    /// All that was committed is taken: never.
    Drained,
}

impl SessionIntake {
    pub(super) fn new(
        id: u64,
        receiver: Receiver,
        streams: Vec<StreamIntake>,
        queue: Arc<WorkQueue>,
        poll_every: Duration,
        ending: oneshot::Sender<Ended>,
    ) -> Self {
        let watch = receiver.watch();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let policy = wait_policy(watch.is_some(), poll_every);
        Self {
            id,
            receiver,
            watch,
            streams,
            queue,
            waiter: Waiter::new(policy, cores),
            draining: None,
            ending: Some(ending),
        }
    }

    /// Returns what rings when the source has written, if there is something.
    pub(super) fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.watch.as_ref()
    }

    /// Goes on without the watch, which cannot be waited for.
    pub(super) fn lose_watch(&mut self, poll_every: Duration) {
        self.watch = None;
        self.waiter = Waiter::new(wait_policy(false, poll_every), 1);
    }

    /// Takes a few blocks, if there are any.
    ///
    /// # Errors
    /// The source misbehaved: the session must end.
    pub(super) fn turn(&mut self) -> Result<Turn, IntakeError> {
        if self.draining.is_some() {
            return self.drain();
        }
        for n in 0..BLOCKS_A_TURN {
            match self.receiver.poll()? {
                Some(block) => self.take(block)?,
                None if n > 0 => break,
                None => return self.found_nothing(),
            }
        }
        self.waiter.found();
        Ok(Turn::Found)
    }

    fn found_nothing(&mut self) -> Result<Turn, IntakeError> {
        Ok(match self.waiter.empty() {
            Step::Spin => Turn::Spin,
            Step::Yield => Turn::Yield,
            Step::Sleep(time) => Turn::Nap(time),
            Step::Block => return self.arm(),
        })
    }

    fn arm(&mut self) -> Result<Turn, IntakeError> {
        let Some(watch) = self.watch.clone() else { return Ok(Turn::Yield) };
        watch.arm();
        let Some(block) = self.receiver.poll()? else { return Ok(Turn::Armed) };
        watch.disarm();
        self.take(block)?;
        Ok(Turn::Found)
    }

    /// From now on it takes what is committed, then ends.
    ///
    /// The source may be gone in the middle of anything: what it committed counts, also if it did
    /// not live to say so in the status bytes. It may also be alive and go on: once around the ring
    /// finds what was there before; the rest stays unreleased, for the next session.
    /// Of a ring that has lost a page nothing is taken: who knows what stands there.
    pub(super) fn begin_draining(&mut self) {
        let is_broken = self.receiver.mr().region().is_broken();
        let blocks = if is_broken { 0 } else { self.receiver.layout().blocks() };
        self.draining.get_or_insert(blocks);
    }

    fn drain(&mut self) -> Result<Turn, IntakeError> {
        for _ in 0..BLOCKS_A_TURN {
            let Some(left) = self.draining.filter(|left| *left > 0) else {
                return Ok(Turn::Drained);
            };
            let Some(block) = self.receiver.drain()? else { return Ok(Turn::Drained) };
            self.draining = Some(left - 1);
            self.take(block)?;
        }
        Ok(Turn::Found)
    }

    /// Ends the intake and notifies the session. Blocks that wait for earlier ones stay unreleased:
    /// the source still has them, and a release would say that they arrived.
    pub(super) fn end(mut self: Box<Self>, result: Result<(), IntakeError>) {
        for stream in &mut self.streams {
            stream.order.take_early().for_each(CountedBlock::abandon);
        }
        let ending = self.ending.take();
        let ended = Ended { result, _intake: self };
        // A session that is gone wants no answer.
        let _ = ending.map(|ending| ending.send(ended));
    }

    fn take(&mut self, block: ReceivedBlock) -> Result<(), IntakeError> {
        let header = block.header();
        check_limits(&header)?;
        let streams = self.streams.len();
        let Some(stream) = self.streams.get_mut(header.stream as usize) else {
            return Err(IntakeError::Stream { stream: header.stream, streams });
        };
        let StreamIntake { order, inlet, progress } = stream;
        let (number, next) = (header.packet_number, order.next_packet());
        if number.saturating_sub(next) > JUMP_MAX {
            return Err(IntakeError::Jump { number, next });
        }
        let block = CountedBlock::new(block, &inlet.stream().device().metrics);
        let tally = order.push(header, block, |block| {
            if let Some(job) = inlet.push(block) {
                self.queue.schedule(job);
            }
        });
        progress.note(order);
        inlet.stream().device().count(&tally);
        Ok(())
    }
}

fn wait_policy(has_watch: bool, poll_every: Duration) -> WaitPolicy {
    let spin_polls = SPIN_POLLS;
    if has_watch {
        WaitPolicy::Doorbell { spin_polls }
    } else if poll_every.is_zero() {
        WaitPolicy::Spin
    } else {
        WaitPolicy::Backoff {
            spin_polls,
            policy: BackoffPolicy::default().with_longest(poll_every),
        }
    }
}

/// Refuses what the format allows and no source may send.
fn check_limits(header: &BlockHeader) -> Result<(), IntakeError> {
    if header.packet_number >= NUMBER_MAX {
        return Err(IntakeError::Number(header.packet_number));
    }
    if header.frame_bytes > FRAME_BYTES_MAX as u64 {
        return Err(IntakeError::FrameBytes(header.frame_bytes));
    }
    Ok(())
}
