//! One device within one session: blocks in order on one side, frames to the sink on the other.
//!
//! The receiving thread of the session pushes blocks; a worker of [`super::workers`] pops them. A
//! stream is in the hands of one worker at a time, which is what keeps its frames in order.
use super::{
    block::HeldBlock,
    device::Device,
    staging::{Staged, Staging},
};
use crate::{
    Frame,
    frame::{FrameBytes, now_unix_ns},
    sink::{Rejected, SinkError},
};
use crossbeam_queue::SegQueue;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Frames that a worker takes from one stream before it looks at others.
const FRAMES_A_TURN: usize = 16;

/// What a worker's turn left behind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing more to do.
    Idle,
    /// More blocks are waiting.
    More,
    /// The sink refused a frame; try again after a while.
    Stalled,
}

pub(super) struct Stream {
    device: Arc<Device>,
    staging: Arc<Staging>,
    blocks: SegQueue<HeldBlock>,
    /// Blocks pushed and not yet with the sink.
    waiting: AtomicU64,
    /// Frames that the sink took in this session.
    delivered: AtomicU64,
    /// Whether a worker has the stream or it waits for one.
    scheduled: AtomicBool,
    assembly: Mutex<Assembly>,
}

/// What the worker keeps between its turns.
#[derive(Default)]
struct Assembly {
    partial: Option<Partial>,
    /// The first block of a frame for which there is no memory yet.
    held: Option<HeldBlock>,
    rejected: Option<Frame>,
}

/// A frame of several blocks of which the last is not here yet.
struct Partial {
    packet_number: u64,
    /// Whether all its blocks had a checksum.
    verified: bool,
    bytes: Vec<u8>,
    staged: Staged,
}

impl Stream {
    pub(super) fn new(device: Arc<Device>, staging: Arc<Staging>) -> Stream {
        Stream {
            device,
            staging,
            blocks: SegQueue::new(),
            waiting: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            scheduled: AtomicBool::new(false),
            assembly: Mutex::default(),
        }
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Frames that the sink took in this session.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Takes the next block in order. True if a worker must be given the stream.
    pub(super) fn push(&self, block: HeldBlock) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.blocks.push(block);
        // With the two steps of `leave` in one order: either it sees the block, or we see it gone.
        !self.scheduled.swap(true, Ordering::SeqCst)
    }

    /// Whether everything pushed has reached the sink.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0 && !self.scheduled.load(Ordering::Acquire)
    }

    /// A worker's turn. It ends early when `stop` becomes true.
    pub(super) fn work(&self, stop: &AtomicBool) -> Turn {
        let mut assembly = self.assembly.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..FRAMES_A_TURN {
            if stop.load(Ordering::Relaxed) {
                return Turn::Stalled;
            }
            match self.step(&mut assembly) {
                Step::Done => {}
                Step::Stalled => return Turn::Stalled,
                Step::Empty => {
                    drop(assembly);
                    return self.leave();
                }
            }
        }
        Turn::More
    }

    /// Drops what waits, for good: the source sends it again to the next collector. Says how many
    /// blocks there were.
    pub(super) fn give_up(&self) -> usize {
        let mut assembly = self.assembly.lock().unwrap_or_else(PoisonError::into_inner);
        let rejected = assembly.rejected.take();
        let mut given_up = usize::from(rejected.is_some());
        rejected.into_iter().for_each(Frame::abandon);
        let held = assembly.held.take();
        for block in held
            .into_iter()
            .chain(std::iter::from_fn(|| self.blocks.pop()))
        {
            block.abandon();
            given_up += 1;
        }
        given_up
    }

    /// Gives the stream back, unless a block came in this moment.
    fn leave(&self) -> Turn {
        self.scheduled.store(false, Ordering::SeqCst);
        if self.blocks.is_empty() || self.scheduled.swap(true, Ordering::SeqCst) {
            Turn::Idle
        } else {
            Turn::More
        }
    }

    fn step(&self, assembly: &mut Assembly) -> Step {
        if let Some(frame) = assembly.rejected.take() {
            return self.offer(assembly, frame);
        }
        let held = assembly.held.take();
        let was_held = held.is_some();
        let Some(block) = held.or_else(|| self.blocks.pop()) else {
            return Step::Empty;
        };
        if !was_held && !self.device.verify(&block) {
            assembly.partial = None;
            self.done();
            return Step::Done;
        }
        match self.assemble(assembly, block) {
            Assembled::Frame(frame) => self.offer(assembly, frame),
            Assembled::NoMemory(block) => {
                assembly.held = Some(block);
                Step::Stalled
            }
            Assembled::Nothing => {
                self.done();
                Step::Done
            }
        }
    }

    /// Puts a block to the frame that it is of.
    ///
    /// The last block of a frame is kept with it, so that the source sees it released only when
    /// the sink has the frame: until then the source can send the frame again.
    fn assemble(&self, assembly: &mut Assembly, block: HeldBlock) -> Assembled {
        let header = *block.header();
        let checked = header.crc().is_some();
        let frame = |verified, bytes| Frame {
            device: self.device.name().clone(),
            packet_number: header.packet_number,
            capture_time_ns: header.capture_time_ns,
            verified,
            bytes,
        };
        if header.frame_bytes == u64::from(header.payload_bytes) {
            assembly.partial = None;
            return Assembled::Frame(frame(checked, FrameBytes::Block(block)));
        }
        if header.frame_offset == 0 {
            // One that never became whole gives its room back first.
            assembly.partial = None;
            let Some(staged) = self.staging.reserve(header.frame_bytes) else {
                return Assembled::NoMemory(block);
            };
            assembly.partial = Some(Partial {
                packet_number: header.packet_number,
                verified: true,
                bytes: Vec::new(),
                staged,
            });
        }
        let Some(partial) = assembly.partial.as_mut() else {
            return Assembled::Nothing;
        };
        let fits = partial.packet_number == header.packet_number
            && partial.bytes.len() as u64 == header.frame_offset;
        if !fits {
            assembly.partial = None;
            return Assembled::Nothing;
        }
        partial.verified &= checked;
        block
            .payload()
            .for_each_chunk(|chunk| partial.bytes.extend_from_slice(chunk));
        if (partial.bytes.len() as u64) < header.frame_bytes {
            return Assembled::Nothing;
        }
        let Some(whole) = assembly.partial.take() else {
            return Assembled::Nothing;
        };
        let bytes = FrameBytes::Assembled {
            bytes: whole.bytes,
            last: Some(block),
            _staged: Some(whole.staged),
        };
        Assembled::Frame(frame(whole.verified, bytes))
    }

    fn offer(&self, assembly: &mut Assembly, frame: Frame) -> Step {
        match self.device.deliver(frame, now_unix_ns()) {
            Ok(()) => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                self.done();
                Step::Done
            }
            Err(Rejected { frame, error }) => {
                self.report(&error);
                assembly.rejected = Some(frame);
                Step::Stalled
            }
        }
    }

    fn done(&self) {
        self.waiting.fetch_sub(1, Ordering::Release);
    }

    fn report(&self, error: &SinkError) {
        tracing::warn!(device = %self.device.name(), %error, "the sink refused a frame; the device waits");
    }
}

/// What a block made.
enum Assembled {
    /// The frame that it completes.
    Frame(Frame),
    /// Nothing yet, or nothing at all.
    Nothing,
    /// It begins a frame for which there is no memory now.
    NoMemory(HeldBlock),
}

enum Step {
    Done,
    Stalled,
    Empty,
}
