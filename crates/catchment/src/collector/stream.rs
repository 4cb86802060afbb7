//! One device within one session: blocks in order on one side, frames to the sink on the other.
//!
//! A stream has three owners. The receive thread has the [`Inlet`] and pushes blocks; one worker at
//! a time has the [`Delivery`], with the sink, and pops them, which keeps the frames in order; both,
//! and the session, see the counters of [`Stream`]. No side waits for another one.
use super::device::{Device, LentSink, Verdict};
use super::growing::{Consumer, Producer, growing_queue};
use super::handover::Parked;
use crate::Frame;
use crate::sink::{CountedBlock, FrameBytes, Rejected, SinkError, Staged, Staging};
use catchment_transfer::BlockHeader;
use catchment_transfer::header::unix_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;
use tokio::sync::Notify;

/// Frames that a worker takes from one stream before it turns to others.
const FRAMES_A_TURN: usize = 16;

/// No packet number.
const NOTHING: u64 = u64::MAX;

/// What a worker's turn left behind.
pub(super) enum Turn {
    /// Nothing more to do.
    Idle,
    /// More blocks are waiting.
    More(Box<Delivery>),
    /// The sink refused a frame, or there is no memory for it; try again after a while.
    Stalled(Box<Delivery>),
}

/// What the receive thread, the workers and the session share of a stream.
pub(super) struct Stream {
    device: Arc<Device>,
    /// Blocks that the receive thread has pushed. Only it writes.
    pushed: AtomicU64,
    /// Blocks that are done with. Only the worker that has the delivery writes.
    done: AtomicU64,
    /// Frames that the sink took in this session.
    delivered: AtomicU64,
    /// The packet number of a damaged frame that the source is asked for: it begins there again, in a new
    /// session. [`NOTHING`] while there is none; from then on nothing is delivered or released.
    asks_for: AtomicU64,
    /// Wakes the session's task when it does.
    attention: Arc<Notify>,
    /// The worker's half, while no worker has it and none needs to.
    parked: Parked<Delivery>,
}

/// The receive thread's end of a stream.
pub(super) struct Inlet {
    stream: Arc<Stream>,
    blocks: Producer<CountedBlock>,
}

/// The worker's half of a stream. One worker at a time has it.
pub(super) struct Delivery {
    sink: LentSink,
    staging: Arc<Staging>,
    blocks: Consumer<CountedBlock>,
    partial: Option<Partial>,
    /// The first block of a frame for which there is no memory yet.
    held: Option<CountedBlock>,
    rejected: Option<Frame>,
}

/// A stream that has blocks, and the worker's half of it.
pub(super) struct Job {
    pub(super) stream: Arc<Stream>,
    pub(super) delivery: Box<Delivery>,
}

/// A frame of several blocks of which the last is not here yet.
struct Partial {
    packet_number: u64,
    /// Whether all its blocks had a checksum.
    verified: bool,
    bytes: Vec<u8>,
    staged: Staged,
}

impl Inlet {
    /// Returns the stream.
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Takes the next block in order. Returns what to schedule, unless a worker has the stream.
    pub(super) fn push(&mut self, block: CountedBlock) -> Option<Job> {
        self.blocks.push(block);
        let pushed = &self.stream.pushed;
        pushed.store(pushed.load(Ordering::Relaxed) + 1, Ordering::Release);
        let delivery = self.stream.parked.take()?;
        Some(Job { stream: self.stream.clone(), delivery })
    }
}

impl Stream {
    /// Creates the stream of a device that has lent its sink, with room for `blocks` blocks before
    /// its queue grows. It notifies `attention` when the session must end.
    pub(super) fn open(
        sink: LentSink,
        staging: Arc<Staging>,
        blocks: usize,
        attention: Arc<Notify>,
    ) -> Inlet {
        let (producer, consumer) = growing_queue(blocks);
        let stream = Self {
            device: sink.device().clone(),
            pushed: AtomicU64::new(0),
            done: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            asks_for: AtomicU64::new(NOTHING),
            attention,
            parked: Parked::new(Box::new(Delivery {
                sink,
                staging,
                blocks: consumer,
                partial: None,
                held: None,
                rejected: None,
            })),
        };
        Inlet { stream: Arc::new(stream), blocks: producer }
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns how many frames the sink took in this session.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Returns whether everything pushed has reached the sink or is lost.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_blocks() && self.asks_for().is_none()
    }

    /// Returns the packet number of the frame that the source must send again.
    pub(super) fn asks_for(&self) -> Option<u64> {
        let packet = self.asks_for.load(Ordering::Acquire);
        (packet != NOTHING).then_some(packet)
    }

    fn has_blocks(&self) -> bool {
        // A block may be done with before it counts as pushed.
        let done = self.done.load(Ordering::Acquire);
        self.pushed.load(Ordering::Acquire) > done
    }

    /// Ends the stream and returns the sink to its device. False while not everything has
    /// reached the sink. Only after the last push.
    pub(super) fn retire(&self) -> bool {
        !self.has_blocks() && self.parked.take().is_some()
    }

    /// Does a worker's turn. It ends early when `stop` becomes true.
    pub(super) fn work(&self, mut delivery: Box<Delivery>, stop: &AtomicBool) -> Turn {
        for _ in 0..FRAMES_A_TURN {
            if stop.load(Ordering::Relaxed) {
                return Turn::Stalled(delivery);
            }
            match self.step(&mut delivery) {
                Step::Done => {}
                Step::Stalled => return Turn::Stalled(delivery),
                Step::Empty => {
                    return match self.parked.park(delivery, || self.has_blocks()) {
                        Some(delivery) => Turn::More(delivery),
                        None => Turn::Idle,
                    };
                }
            }
        }
        Turn::More(delivery)
    }

    fn step(&self, delivery: &mut Delivery) -> Step {
        if self.asks_for.load(Ordering::Relaxed) != NOTHING {
            return self.abandon_next(delivery);
        }
        if let Some(frame) = delivery.rejected.take() {
            return self.offer_again(delivery, frame);
        }
        let held = delivery.held.take();
        let Some(block) = held.or_else(|| delivery.blocks.pop()) else { return Step::Empty };
        match self.device.verify(&block) {
            Verdict::Intact => {}
            Verdict::Lost => {
                delivery.partial = None;
                self.done();
                return Step::Done;
            }
            Verdict::AskAgain => {
                let packet = block.header().packet_number;
                block.abandon();
                return self.ask_again(delivery, packet);
            }
        }
        match self.assemble(delivery, block) {
            Assembled::Frame(frame) => self.offer(delivery, frame),
            Assembled::NoMemory(block) => {
                delivery.held = Some(block);
                Step::Stalled
            }
            Assembled::Nothing => {
                self.done();
                Step::Done
            }
        }
    }

    /// Offers a frame that the sink refused. It has waited where others can write.
    #[cold]
    fn offer_again(&self, delivery: &mut Delivery, frame: Frame) -> Step {
        match frame.block().map_or(Verdict::Intact, |block| self.device.verify(block)) {
            Verdict::Intact => {
                let step = self.offer(delivery, frame);
                if step == Step::Done {
                    tracing::warn!(device = %self.device.name, "the sink takes frames again");
                }
                step
            }
            Verdict::Lost => {
                self.done();
                Step::Done
            }
            Verdict::AskAgain => {
                let packet = frame.packet_number();
                frame.abandon();
                self.ask_again(delivery, packet)
            }
        }
    }

    /// Leaves all later blocks to the source too, and has the session end.
    #[cold]
    fn ask_again(&self, delivery: &mut Delivery, packet: u64) -> Step {
        delivery.partial = None;
        self.device.leave(packet);
        self.asks_for.store(packet, Ordering::Release);
        self.done();
        self.attention.notify_one();
        Step::Done
    }

    #[cold]
    fn abandon_next(&self, delivery: &mut Delivery) -> Step {
        let Some(block) = delivery.blocks.pop() else { return Step::Empty };
        self.device.leave(block.header().packet_number);
        block.abandon();
        self.done();
        Step::Done
    }

    /// Puts a block to the frame that it is of.
    ///
    /// The last block of a frame is kept with it, so that the source sees it released only when
    /// the sink has the frame: until then the source can send the frame again.
    fn assemble(&self, delivery: &mut Delivery, block: CountedBlock) -> Assembled {
        let header = block.header();
        let checked = header.crc().is_some();
        let frame = |verified, bytes| {
            let BlockHeader { packet_number, capture_time_ns, .. } = header;
            Frame::new(self.device.name.clone(), packet_number, capture_time_ns, verified, bytes)
        };
        if header.frame_bytes == u64::from(header.payload_bytes) {
            delivery.partial = None;
            return Assembled::Frame(frame(checked, FrameBytes::Block(block)));
        }
        if header.frame_offset == 0 {
            // A frame that never became complete frees its room first.
            delivery.partial = None;
            let Some(staged) = delivery.staging.reserve(header.frame_bytes) else {
                return Assembled::NoMemory(block);
            };
            delivery.partial = Some(Partial {
                packet_number: header.packet_number,
                verified: true,
                bytes: Vec::new(),
                staged,
            });
        }
        let Some(partial) = delivery.partial.as_mut() else { return Assembled::Nothing };
        let fits = partial.packet_number == header.packet_number
            && partial.bytes.len() as u64 == header.frame_offset;
        if !fits {
            delivery.partial = None;
            return Assembled::Nothing;
        }
        partial.verified &= checked;
        block.payload().for_each_chunk(|chunk| partial.bytes.extend_from_slice(chunk));
        if (partial.bytes.len() as u64) < header.frame_bytes {
            return Assembled::Nothing;
        }
        let Some(whole) = delivery.partial.take() else { return Assembled::Nothing };
        let bytes = FrameBytes::Assembled {
            bytes: whole.bytes,
            last: Some(block),
            staged: Some(whole.staged),
        };
        Assembled::Frame(frame(whole.verified, bytes))
    }

    fn offer(&self, delivery: &mut Delivery, frame: Frame) -> Step {
        match delivery.sink.deliver(frame, unix_ns(SystemTime::now())) {
            Ok(has_it) => {
                self.delivered.fetch_add(u64::from(has_it), Ordering::Relaxed);
                self.done();
                Step::Done
            }
            Err(Rejected { mut frame, error }) => {
                self.report(&error);
                frame.hold();
                delivery.rejected = Some(frame);
                Step::Stalled
            }
        }
    }

    fn done(&self) {
        let done = self.done.load(Ordering::Relaxed);
        self.done.store(done + 1, Ordering::Release);
    }

    fn report(&self, error: &SinkError) {
        tracing::warn!(device = %&self.device.name, %error, "the sink refused a frame; the device waits");
    }
}

impl Delivery {
    /// Drops what waits, for good: the source sends it again to the next collector. Returns how
    /// many frames there were.
    pub(super) fn give_up(&mut self) -> u64 {
        let rejected = self.rejected.take();
        let mut given_up = u64::from(rejected.is_some());
        let mut last = rejected.as_ref().map(Frame::packet_number);
        rejected.into_iter().for_each(Frame::abandon);
        let mut held = self.held.take();
        while let Some(block) = held.take().or_else(|| self.blocks.pop()) {
            let number = Some(block.header().packet_number);
            given_up += u64::from(number != last);
            last = number;
            block.abandon();
        }
        given_up
    }
}

/// What a block made.
enum Assembled {
    /// The frame that it completes.
    Frame(Frame),
    /// Nothing yet, or nothing at all.
    Nothing,
    /// It begins a frame for which there is no memory now.
    NoMemory(CountedBlock),
}

#[derive(PartialEq, Eq)]
enum Step {
    Done,
    Stalled,
    Empty,
}
