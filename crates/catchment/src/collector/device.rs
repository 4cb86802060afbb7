//! A device as the collector knows it, across all sessions of its source.
use super::again::Again;
use crate::Frame;
use crate::observe::preview::PixelSource;
use crate::observe::{DeviceMetrics, FrameObservation, LossCause};
use crate::session::check::NUMBER_MAX;
use crate::sink::{DeviceSink, NullSink, Rejected};
use catchment_transfer::ReceivedBlock;
use catchment_transfer::order::Tally;
use catchment_verbs::sync::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One device: its sink, its counters, and how far its stream is.
pub(super) struct Device {
    pub(super) name: Arc<str>,
    pub(super) metrics: Arc<DeviceMetrics>,
    /// While no session has it.
    sink: Mutex<Option<Box<dyn DeviceSink>>>,
    /// First packet number that is neither with the sink nor lost; [`UNKNOWN`] before the first frame.
    next_packet: AtomicU64,
    /// Where its packet numbers begin at this collector; until one is passed, where the session does.
    origin: AtomicU64,
    /// The source process that sends this device, and how many of its frames are lost.
    instance: AtomicU64,
    lost: AtomicU64,
    /// [`Device::next_packet`] when the collector met it.
    met_at: u64,
    again: Again,
}

/// What a block is, compared with what its source committed.
pub(super) enum Verdict {
    /// The same.
    Intact,
    /// Not the same, and the frame is lost.
    Lost,
    /// Not the same, and the source may still have the frame.
    AskAgain,
}

/// No packet number.
const UNKNOWN: u64 = u64::MAX;

impl Device {
    /// Creates a device that no session has.
    pub(super) fn new(name: &str, metrics: Arc<DeviceMetrics>, sink: Box<dyn DeviceSink>) -> Self {
        let next_packet = sink.next_packet();
        let met_at = next_packet.unwrap_or(UNKNOWN);
        Self {
            name: name.into(),
            metrics,
            next_packet: AtomicU64::new(met_at),
            met_at,
            origin: AtomicU64::new(next_packet.unwrap_or(0)),
            sink: Mutex::new(Some(sink)),
            instance: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            again: Again::new(),
        }
    }

    pub(super) fn next_packet(&self) -> Option<u64> {
        let next = self.next_packet.load(Ordering::Acquire);
        (next != UNKNOWN).then_some(next)
    }

    /// Counts what the order of the stream found.
    pub(super) fn count(&self, tally: &Tally) {
        if *tally == Tally::default() {
            return;
        }
        (0..tally.duplicates).for_each(|_| self.metrics.duplicate_discarded());
        (0..tally.reordered).for_each(|_| self.metrics.reordered());
    }

    /// Begins a session of a source process whose stream begins with this packet number. Numbers between
    /// what the collector has and that one are lost.
    pub(super) fn begin(&self, instance: u64, first_packet: u64) {
        self.again.begin();
        if self.instance.swap(instance, Ordering::Relaxed) != instance {
            self.lost.store(0, Ordering::Relaxed);
        }
        let Some(next) = self.next_packet() else {
            return self.origin.store(first_packet, Ordering::Relaxed);
        };
        if first_packet > next {
            self.move_to(first_packet);
            self.lose(LossCause::Missing, first_packet - next);
        }
    }

    /// Returns how many frames of the source process are lost, in all its sessions.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// First packet number that is neither with the sink nor lost, in this session.
    fn expected(&self) -> u64 {
        self.next_packet().unwrap_or_else(|| self.origin.load(Ordering::Relaxed))
    }

    /// Moves on behind a frame. Its source has left out the numbers before it that did not come.
    fn pass(&self, packet: u64) {
        let skipped = packet.saturating_sub(self.expected());
        if skipped > 0 {
            self.metrics.frames_skipped(skipped);
        }
        self.move_to(packet + 1);
    }

    fn move_to(&self, next: u64) {
        let origin = self.origin.load(Ordering::Relaxed);
        self.metrics.frames_numbered(next.saturating_sub(origin));
        self.next_packet.store(next, Ordering::Release);
    }

    /// Returns whether a frame that is not here as it was sent may be asked for again.
    pub(super) fn may_ask_again(&self, packet: u64) -> bool {
        let may = self.again.ask(packet);
        if may {
            // The next session may begin behind it: then it is lost.
            let origin = self.origin.load(Ordering::Relaxed);
            let _ = self.next_packet.compare_exchange(
                UNKNOWN,
                origin,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
        may
    }

    /// Leaves a frame to its source, which is to send it again.
    pub(super) fn leave(&self, packet: u64) {
        self.again.leave(packet);
    }

    /// Returns how many frames were here, and were left to a source that has not come back.
    pub(super) fn left(&self) -> u64 {
        self.again.left()
    }

    fn lose(&self, cause: LossCause, frames: u64) {
        // One writer at a time: the session that begins, then the worker that has the stream.
        let lost = self.lost().saturating_add(frames).min(NUMBER_MAX);
        self.lost.store(lost, Ordering::Relaxed);
        self.metrics.frames_lost(cause, frames);
    }

    /// Compares the block with what its source committed. A frame that is lost counts once, and is not
    /// awaited any more.
    pub(super) fn verify(&self, block: &ReceivedBlock) -> Verdict {
        // An empty frame stands for one that its source cannot send again.
        if block.header().frame_bytes > 0 && block.check_crc().is_ok() {
            return Verdict::Intact;
        }
        self.judge_damaged(block)
    }

    #[cold]
    fn judge_damaged(&self, block: &ReceivedBlock) -> Verdict {
        let packet = block.header().packet_number;
        let is_there = block.header().frame_bytes > 0;
        if is_there || !self.again.has_asked_for(packet) {
            self.metrics.checksum_error();
        }
        if packet < self.expected() {
            // Another block of a frame that is lost.
            return Verdict::Lost;
        }
        if is_there && self.may_ask_again(packet) {
            tracing::warn!(device = %self.name, packet,
                "a block's checksum is wrong; the frame is asked for again");
            return Verdict::AskAgain;
        }
        tracing::error!(device = %self.name, packet,
            "a frame was damaged and cannot be had again; it is lost");
        self.pass(packet);
        self.lose(LossCause::Damaged, 1);
        Verdict::Lost
    }

    /// Lends the sink to a session; `None` while another one has it.
    pub(super) fn lend_sink(self: &Arc<Self>) -> Option<LentSink> {
        let sink = self.sink.lock().take()?;
        Some(LentSink { device: self.clone(), sink, at_first: None })
    }

    /// Returns whether a frame came, or was lost, since the collector met it.
    pub(super) fn was_used(&self) -> bool {
        self.next_packet.load(Ordering::Acquire) != self.met_at || self.lost() > 0
    }

    /// Returns whether its sink, while no session has it, knows where the device goes on.
    pub(super) fn is_stored(&self) -> bool {
        self.sink.lock().as_ref().is_some_and(|sink| sink.next_packet().is_some())
    }

    /// Tells the sink what the source says that the frames of its session hold.
    pub(super) fn describe(&self, format: &str) {
        if let Some(sink) = &mut *self.sink.lock() {
            sink.describe(format);
        }
    }

    /// Returns why the sink refuses its frames now, if it does.
    pub(super) fn refused(&self) -> Option<String> {
        self.metrics.is_sink_refusing().then(|| self.metrics.sink_refusal())
    }
}

pub(super) type AtFirst = Box<dyn FnOnce() + Send>;

/// The sink of a device, lent to one session. Dropping it returns it.
pub(super) struct LentSink {
    device: Arc<Device>,
    sink: Box<dyn DeviceSink>,
    /// What the first frame of the session brings about.
    at_first: Option<AtFirst>,
}

impl LentSink {
    /// Does this once, with the first frame.
    pub(super) fn at_first(mut self, work: Option<AtFirst>) -> Self {
        self.at_first = work;
        self
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Delivers a frame to the sink and counts it. Returns whether the sink has it.
    #[allow(
        clippy::result_large_err,
        reason = "the frame comes back as it went in, without an allocation"
    )]
    pub(super) fn deliver(&mut self, frame: Frame, now_ns: u64) -> Result<bool, Rejected> {
        let device = &*self.device;
        let sink = &mut self.sink;
        let number = frame.packet_number();
        let observation = FrameObservation {
            bytes: frame.bytes() as u64,
            verified: frame.is_verified(),
            captured_unix_ns: frame.capture_time_ns(),
            delivered_unix_ns: now_ns,
        };
        let preview = device.metrics.preview();
        if preview.demand().is_due() {
            preview.offer(frame.bytes(), &Pixels(&frame));
        }
        // The frame cannot come back from a panic: it counts as refused, and the device goes on.
        let accepted = catch_unwind(AssertUnwindSafe(|| sink.accept(frame)));
        if let Ok(Err(rejected)) = accepted {
            device.metrics.sink_error();
            device.metrics.sink_refused(&rejected.error);
            return Err(rejected);
        }
        device.metrics.sink_took();
        device.pass(number);
        if let Some(at_first) = self.at_first.take() {
            at_first();
        }
        if accepted.is_ok() {
            device.metrics.frame_received(&observation);
        } else {
            device.metrics.sink_error();
            device.lose(LossCause::Sink, 1);
            tracing::error!(device = %device.name, packet = number, "the sink panicked; the frame is lost");
        }
        Ok(accepted.is_ok())
    }
}

impl Drop for LentSink {
    fn drop(&mut self) {
        // A box of nothing: no allocation.
        let sink = std::mem::replace(&mut self.sink, Box::new(NullSink));
        *self.device.sink.lock() = Some(sink);
    }
}

/// Lets the preview read a frame.
struct Pixels<'a>(&'a Frame);

impl PixelSource for Pixels<'_> {
    fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read_at(offset, out);
    }
}
