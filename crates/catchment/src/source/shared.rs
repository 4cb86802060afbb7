//! What the threads of a source share: whether it takes frames, and each device's numbers.
use super::SourceError;
use super::backlog::{Backlog, Waiting};
use super::lifecycle::Lifecycle;
use crate::observe::{DropCause, Ledger, SourceDeviceMetrics, SourceMetrics, Unaccounted};
use crate::session::message::{Policy, StreamStats};
use crate::session::names::DeviceName;
use catchment_granting::Granting;
use catchment_verbs::sync::Mutex;
use catchment_verbs::wait::EventCount;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Shared by the application's threads, the control thread and the pump.
pub(super) struct Shared {
    pub(super) devices: Vec<Arc<DeviceState>>,
    pub(super) metrics: Arc<SourceMetrics>,
    /// Whether blocks carry a checksum also where the collector does not need one.
    pub(super) checksum: bool,
    pub(super) life: Lifecycle,
    /// Where a transmission controller decides when blocks go.
    pub(super) granting: Option<Arc<Granting>>,
}

impl Shared {
    /// Returns why no new frame is accepted, if so. Takes no lock while frames are.
    pub(super) fn check_open(&self) -> Result<(), SourceError> {
        if !self.life.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.life.check_open()
    }

    /// Rings the pump if the device has something for it.
    pub(super) fn pump_if_needed(&self, device: &DeviceState) {
        if device.has_backlog() {
            self.life.ring_pump();
        }
    }

    /// Accepted frames that no collector is known to have.
    pub(super) fn undelivered_frames(&self) -> usize {
        let link = self.life.link();
        let in_flight = |device: &DeviceState| match &link {
            Some(link) => link.outstanding(device.stream()) as usize,
            None => device.backlog().kept(),
        };
        let in_flight: usize = self.devices.iter().map(|d| in_flight(d)).sum();
        self.backlog_frames() + in_flight
    }

    /// Frames that wait in the source's memory.
    pub(super) fn backlog_frames(&self) -> usize {
        self.devices.iter().map(|d| d.backlog().len()).sum()
    }
}

/// One device: how far its stream is, and what waits.
pub(super) struct DeviceState {
    pub(super) name: DeviceName,
    pub(super) format: Option<String>,
    pub(super) policy: Policy,
    pub(super) metrics: Arc<SourceDeviceMetrics>,
    /// Frames that [`Policy::DropOldest`] keeps while no block is free.
    pub(super) backlog_max: usize,
    /// Number of the next new frame. Written by the filling thread, and by the control thread
    /// while no link is open.
    next_packet: AtomicU64,
    /// Number of the stream in the session of the moment.
    stream: AtomicU32,
    /// Packet numbers that belong to no frame of this process.
    numbers_passed_over: AtomicU64,
    /// Frames counted as sent when the session began, and of those the ones that were sent again in it.
    sent_before: AtomicU64,
    sent_again: AtomicU64,
    /// Frames dropped as too late when the session began.
    late_before: AtomicU64,
    /// Blocks in flight as the counters know.
    in_flight: AtomicU32,
    backlog: Mutex<Backlog>,
    /// Whether `backlog` holds frames or skipped numbers. While it does not, no thread locks it.
    has_backlog_or_skips: AtomicBool,
    /// Changes when the backlog has become empty.
    drained: EventCount,
}

impl DeviceState {
    pub(super) fn new(
        name: DeviceName,
        format: Option<String>,
        policy: Policy,
        backlog_max: usize,
        metrics: Arc<SourceDeviceMetrics>,
    ) -> Self {
        Self {
            name,
            format,
            policy,
            metrics,
            backlog_max,
            next_packet: AtomicU64::new(0),
            stream: AtomicU32::new(0),
            numbers_passed_over: AtomicU64::new(0),
            sent_before: AtomicU64::new(0),
            sent_again: AtomicU64::new(0),
            late_before: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            backlog: Mutex::default(),
            has_backlog_or_skips: AtomicBool::new(false),
            drained: EventCount::new(),
        }
    }

    pub(super) fn stream(&self) -> u32 {
        self.stream.load(Ordering::Acquire)
    }

    pub(super) fn next_packet(&self) -> u64 {
        self.next_packet.load(Ordering::Acquire)
    }

    /// Takes over what a Welcome says: forgets frames that the collector has, and goes on behind
    /// them.
    pub(super) fn resume(&self, stream: u32, collector_next: Option<u64>) {
        self.stream.store(stream, Ordering::Release);
        let mut backlog = self.backlog();
        let next = collector_next.unwrap_or(0);
        let old = self.next_packet.fetch_max(next, Ordering::AcqRel);
        let new = old.max(next);
        self.numbers_passed_over.fetch_add(new - old, Ordering::Relaxed);
        self.sent_before.store(self.metrics.frames_sent(), Ordering::Relaxed);
        self.sent_again.store(0, Ordering::Relaxed);
        self.late_before.store(self.metrics.dropped_late(), Ordering::Relaxed);
        backlog.send_kept_again(next);
        if collector_next.is_some() {
            backlog.forget_before(next, new);
        }
        self.metrics.lost_at_least(backlog.count_lost(collector_next, new));
        self.settle(&mut backlog, next);
        self.note(&backlog);
        if backlog.is_empty() {
            self.drained.notify();
        }
    }

    fn settle(&self, backlog: &mut Backlog, collector_next: u64) {
        for _ in 0..backlog.settle(collector_next) {
            self.metrics.frame_dropped(DropCause::Reconnect);
        }
    }

    /// Counts frames as dropped that were sent before a break, and that no collector will be asked for.
    pub(super) fn settle_without_collector(&self) {
        self.settle(&mut self.backlog(), 0);
    }

    /// First packet number that the new session will carry.
    pub(super) fn first_packet(&self) -> u64 {
        self.backlog().first_packet(self.next_packet())
    }

    /// The number of the next frame, and how many before it were dropped.
    pub(super) fn take_number(&self) -> (u64, u32) {
        let skipped = if self.has_backlog_or_skips.load(Ordering::Acquire) {
            let mut backlog = self.backlog();
            let skipped = std::mem::take(&mut backlog.skipped);
            self.note(&backlog);
            skipped
        } else {
            0
        };
        (self.next_packet.fetch_add(1, Ordering::AcqRel), skipped)
    }

    /// Notes which frames a link has dropped as too late, after they had their numbers. Only while nothing can be
    /// committed.
    pub(super) fn pass_over(&self, dropped: &[Range<u64>]) {
        if !dropped.is_empty() {
            let mut backlog = self.backlog();
            let next = self.next_packet();
            dropped.iter().for_each(|numbers| backlog.pass_over(numbers, next));
            self.note(&backlog);
        }
    }

    /// Uses up a number for a frame that is dropped.
    pub(super) fn drop_new(&self) {
        let mut backlog = self.backlog();
        self.metrics.frame_dropped(DropCause::Newest);
        backlog.skipped = backlog.skipped.saturating_add(1);
        self.next_packet.fetch_add(1, Ordering::AcqRel);
        self.note(&backlog);
    }

    /// Hands a new frame to the pump. Drops older ones if the policy says so.
    pub(super) fn stage(&self, bytes: Vec<u8>, capture_time_ns: u64) -> u64 {
        let mut backlog = self.backlog();
        if self.policy == Policy::DropOldest {
            for _ in 0..backlog.drop_oldest(self.backlog_max) {
                self.metrics.frame_dropped(DropCause::Oldest);
            }
        }
        let number = self.next_packet.fetch_add(1, Ordering::AcqRel);
        let frame = Waiting {
            skipped: std::mem::take(&mut backlog.skipped),
            capture_time_ns,
            counted: false,
            bytes: bytes.into(),
        };
        backlog.insert(number, frame);
        self.note(&backlog);
        number
    }

    /// Forgets frames of several blocks before `packet_number`, the first that is not known to be
    /// with the sink; all of them for `None`.
    pub(super) fn forget_kept_before(&self, packet_number: Option<u64>) {
        self.backlog().forget_kept_before(packet_number);
    }

    /// Updates the counters with the blocks in flight now. Only for the control thread.
    pub(super) fn count_in_flight(&self, blocks: u32) {
        let before = self.in_flight.swap(blocks, Ordering::Relaxed);
        self.metrics.blocks_taken(blocks.saturating_sub(before).into());
        self.metrics.blocks_released(before.saturating_sub(blocks).into());
    }

    /// Puts back a frame that has its number already.
    pub(super) fn push(&self, packet_number: u64, frame: Waiting) {
        let mut backlog = self.backlog();
        backlog.insert(packet_number, frame);
        self.note(&backlog);
    }

    /// Hands the oldest waiting frame to the pump, which answers with [`DeviceState::sent`] or
    /// [`DeviceState::put_back`].
    pub(super) fn take_first(&self) -> Option<(u64, Waiting)> {
        if self.has_backlog_or_skips.load(Ordering::Acquire) {
            self.backlog().take_first()
        } else {
            None
        }
    }

    /// Checks and notes what the collector says at the end: that it has delivered `delivered` frames in
    /// this session, and that `lost` of this process are lost. Returns how many are.
    pub(super) fn settle_accounts(&self, delivered: u64, lost: u64) -> Result<u64, Unaccounted> {
        self.metrics.lost_at_least(lost);
        let name = self.name.as_str();
        let again = self.sent_again.load(Ordering::Relaxed);
        let sent = self.metrics.frames_sent() - self.sent_before.load(Ordering::Relaxed) + again;
        let dropped = self.metrics.dropped_late() - self.late_before.load(Ordering::Relaxed);
        // Losses of earlier sessions are in `lost` too: more than what is missing here may be.
        let lost_here = lost.min(sent.saturating_sub(delivered).saturating_sub(dropped));
        Ledger { sent, delivered, dropped, lost: lost_here }.check(name, "collector")?;
        // A thread that is late may drop a frame now.
        let _backlog = self.backlog();
        let passed_over = self.numbers_passed_over.load(Ordering::Relaxed);
        let counters = self.metrics.snapshot().counters;
        let gone = counters.dropped_reconnect + counters.dropped_late + counters.frames_lost;
        let delivered = counters.frames_sent.saturating_sub(gone);
        self.metrics.settled(self.next_packet() - passed_over, delivered);
        self.metrics.snapshot().counters.ledger().check(name, "source")?;
        Ok(counters.frames_lost)
    }

    /// The pump has sent its frame, `again` if it was sent before.
    pub(super) fn sent(&self, again: bool, keep_most: Option<usize>) {
        self.sent_again.fetch_add(u64::from(again), Ordering::Relaxed);
        let mut backlog = self.backlog();
        backlog.sent(keep_most);
        self.note(&backlog);
        if backlog.is_empty() {
            self.drained.notify();
        }
    }

    /// The pump could not send its frame.
    pub(super) fn put_back(&self) {
        self.backlog().put_back();
    }

    pub(super) fn has_backlog(&self) -> bool {
        self.has_backlog_or_skips.load(Ordering::Acquire) && !self.backlog().is_empty()
    }

    /// Sleeps until the backlog is empty or the time is over.
    pub(super) fn wait_for_backlog(&self, timeout: Duration) {
        let seen = self.drained.current();
        if !self.backlog().is_empty() {
            self.drained.wait(seen, Some(Instant::now() + timeout));
        }
    }

    /// What is reported to the collector.
    pub(super) fn stats(&self) -> StreamStats {
        let counters = self.metrics.snapshot().counters;
        StreamStats {
            stream: self.stream(),
            sent_frames: counters.frames_sent,
            sent_bytes: counters.bytes_sent,
            dropped_oldest: counters.dropped_oldest,
            dropped_newest: counters.dropped_newest,
            // What was counted as sent and never came.
            dropped_reconnect: counters.dropped_reconnect + counters.dropped_late,
            blocked_us: counters.block_wait_ns / 1000,
        }
    }

    pub(super) fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock()
    }

    fn note(&self, backlog: &Backlog) {
        let some = !backlog.is_empty() || backlog.skipped > 0;
        self.has_backlog_or_skips.store(some, Ordering::Release);
    }
}
