//! What the threads of a source share: the link of the moment, and each device's numbers.
use super::SourceError;
use super::backlog::{Backlog, Waiting};
use super::link::Link;
use crate::observe::{DropCause, SourceDeviceMetrics, SourceMetrics};
use crate::session::message::{Policy, StreamStats};
use crate::session::names::DeviceName;
use catchment_verbs::sync::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Shared by the application's threads, the control thread and the pump.
pub(super) struct Shared {
    pub(super) devices: Vec<Arc<DeviceState>>,
    pub(super) metrics: Arc<SourceMetrics>,
    /// Whether blocks carry a checksum also where the collector does not need one.
    pub(super) checksum: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether `state` says that no new frame is accepted. Filling threads read only this.
    closed: AtomicBool,
    /// Rises when some backlog got a frame; the pump sleeps on it.
    pump: Mutex<u64>,
    pump_rung: Condvar,
    /// Wakes the control thread.
    pub(super) control: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Why the source takes no more frames.
    ended: Option<Arc<SourceError>>,
    closing: bool,
    /// Every accepted frame is with the collector's sinks, and it has said so.
    finished: bool,
    stopped: bool,
    /// What the last try to connect said.
    last_failure: Option<String>,
    was_connected: bool,
}

impl State {
    fn is_closed(&self) -> bool {
        self.closing || self.ended.is_some()
    }
}

impl Shared {
    pub(super) fn new(
        devices: Vec<Arc<DeviceState>>,
        metrics: Arc<SourceMetrics>,
        checksum: bool,
    ) -> Shared {
        Shared {
            devices,
            metrics,
            checksum,
            state: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
            pump: Mutex::new(0),
            pump_rung: Condvar::new(),
            control: tokio::sync::Notify::new(),
        }
    }

    /// The link, if the source is connected.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.state().link.clone()
    }

    /// Publishes a new link, or that there is none.
    pub(super) fn set_link(&self, link: Option<Arc<Link>>) {
        let mut state = self.state();
        state.was_connected |= link.is_some();
        state.link = link;
        self.notify(state);
    }

    /// Ends the source: filling threads get `error` from now on.
    pub(super) fn end(&self, error: SourceError) {
        let mut state = self.state();
        state.ended.get_or_insert(Arc::new(error));
        self.notify(state);
    }

    /// Notes why the last try to connect failed.
    pub(super) fn connect_failed(&self, reason: String) {
        self.state().last_failure = Some(reason);
    }

    /// Says that the application wants to close.
    pub(super) fn begin_closing(&self) {
        let mut state = self.state();
        state.closing = true;
        self.notify(state);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state().closing
    }

    /// Says that the collector has delivered everything.
    pub(super) fn set_finished(&self) {
        let mut state = self.state();
        state.finished = true;
        self.notify(state);
    }

    /// Lets all threads of the source end.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        state.ended.get_or_insert(Arc::new(SourceError::Closed));
        self.notify(state);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state().finished
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    pub(super) fn ended(&self) -> Option<Arc<SourceError>> {
        self.state().ended.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn notify(&self, state: MutexGuard<'_, State>) {
        self.closed.store(state.is_closed(), Ordering::Release);
        drop(state);
        self.changed.notify_all();
        self.ring_pump();
        self.control.notify_one();
    }

    /// Sleeps until the first session is ready.
    pub(super) fn wait_connected(
        &self,
        collector: &str,
        patience: Option<Duration>,
    ) -> Result<(), SourceError> {
        let started = Instant::now();
        let mut state = self.state();
        loop {
            if let Some(error) = state.ended.take() {
                // Only one caller sees it: the source is dropped now.
                return Err(Arc::try_unwrap(error).unwrap_or_else(SourceError::Ended));
            }
            if state.was_connected {
                return Ok(());
            }
            let left = patience.map(|p| p.saturating_sub(started.elapsed()));
            if left == Some(Duration::ZERO) {
                let reason = state.last_failure.take();
                return Err(SourceError::Unreachable {
                    collector: collector.to_owned(),
                    waited: patience.unwrap_or_default(),
                    reason: reason.unwrap_or_else(|| "no answer yet".to_owned()),
                });
            }
            state = self.sleep(state, left);
        }
    }

    /// Sleeps until the collector has everything, the source has ended, or the time is over. True
    /// if the collector has everything.
    pub(super) fn wait_finished(&self, deadline: Instant) -> bool {
        let mut state = self.state();
        while !state.finished && state.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.sleep(state, Some(left));
        }
        state.finished
    }

    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let timeout = timeout.unwrap_or(Duration::from_secs(3600));
        self.changed.wait_timeout(state, timeout)
    }

    /// Returns why no new frame is accepted, if so. Takes no lock while frames are.
    pub(super) fn check_open(&self) -> Result<(), SourceError> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state();
        match &state.ended {
            Some(error) => Err(SourceError::Ended(error.clone())),
            None if state.closing => Err(SourceError::Closed),
            None => Ok(()),
        }
    }

    /// Sleeps until the link or the end changes, or the time is over.
    pub(super) fn wait_for_link(&self, timeout: Duration) {
        let state = self.state();
        if state.link.is_none() && state.ended.is_none() {
            drop(self.changed.wait_timeout(state, timeout));
        }
    }

    /// Rings the pump if the device has something for it.
    pub(super) fn pump_if_needed(&self, device: &DeviceState) {
        if device.has_backlog() {
            self.ring_pump();
        }
    }

    pub(super) fn ring_pump(&self) {
        *self.pump.lock() += 1;
        self.pump_rung.notify_all();
    }

    /// Sleeps until rung since `seen`; returns the new count. Frames that wait, another link and the
    /// end ring.
    pub(super) fn wait_for_pump(&self, seen: u64) -> u64 {
        let rung = self.pump.lock();
        *self.pump_rung.wait_while(rung, |rung| *rung == seen)
    }

    /// Accepted frames that no collector is known to have.
    pub(super) fn undelivered_frames(&self) -> usize {
        let link = self.link();
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
    /// Blocks in flight as the counters know.
    in_flight: AtomicU32,
    backlog: Mutex<Backlog>,
    /// Whether `backlog` holds frames or skipped numbers. While it does not, nobody locks it.
    has_backlog_or_skips: AtomicBool,
    drained: Condvar,
}

impl DeviceState {
    pub(super) fn new(
        name: DeviceName,
        format: Option<String>,
        policy: Policy,
        backlog_max: usize,
        metrics: Arc<SourceDeviceMetrics>,
    ) -> DeviceState {
        DeviceState {
            name,
            format,
            policy,
            metrics,
            backlog_max,
            next_packet: AtomicU64::new(0),
            stream: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            backlog: Mutex::default(),
            has_backlog_or_skips: AtomicBool::new(false),
            drained: Condvar::new(),
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
        if let Some(next) = collector_next {
            let new = self.next_packet.fetch_max(next, Ordering::AcqRel).max(next);
            backlog.send_kept_again(next);
            backlog.forget_before(next, new);
        } else {
            backlog.send_kept_again(0);
        }
        self.settle(&mut backlog, collector_next.unwrap_or(0));
        self.note(&backlog);
        if backlog.is_empty() {
            self.drained.notify_all();
        }
    }

    fn settle(&self, backlog: &mut Backlog, collector_next: u64) {
        for _ in 0..backlog.settle(collector_next) {
            self.metrics.frame_dropped(DropCause::Reconnect);
        }
    }

    /// No collector will be asked any more which frames it has.
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

    /// Uses up a number for a frame that is dropped.
    pub(super) fn drop_new(&self) {
        let mut backlog = self.backlog();
        backlog.skipped = backlog.skipped.saturating_add(1);
        self.next_packet.fetch_add(1, Ordering::AcqRel);
        self.note(&backlog);
    }

    /// Gives a new frame to the pump. Drops older ones if the policy says so.
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

    /// Tells the counters how many blocks are in flight now. Only for the control thread.
    pub(super) fn count_in_flight(&self, blocks: u32) {
        let before = self.in_flight.swap(blocks, Ordering::Relaxed);
        self.metrics
            .blocks_taken(blocks.saturating_sub(before).into());
        self.metrics
            .blocks_released(before.saturating_sub(blocks).into());
    }

    /// Puts back a frame that has its number already.
    pub(super) fn push(&self, packet_number: u64, frame: Waiting) {
        let mut backlog = self.backlog();
        backlog.insert(packet_number, frame);
        self.note(&backlog);
    }

    /// Gives the oldest waiting frame to the pump, which answers with [`DeviceState::sent`] or
    /// [`DeviceState::put_back`].
    pub(super) fn take_first(&self) -> Option<(u64, Waiting)> {
        if self.has_backlog_or_skips.load(Ordering::Acquire) {
            self.backlog().take_first()
        } else {
            None
        }
    }

    /// The pump has sent its frame.
    pub(super) fn sent(&self, keep_most: Option<usize>) {
        let mut backlog = self.backlog();
        backlog.sent(keep_most);
        self.note(&backlog);
        if backlog.is_empty() {
            self.drained.notify_all();
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
        let backlog = self.backlog();
        if !backlog.is_empty() {
            drop(self.drained.wait_timeout(backlog, timeout));
        }
    }

    /// What the collector is told.
    pub(super) fn stats(&self) -> StreamStats {
        let counters = self.metrics.snapshot().counters;
        StreamStats {
            stream: self.stream(),
            sent_frames: counters.frames_sent,
            sent_bytes: counters.bytes_sent,
            dropped_oldest: counters.dropped_oldest,
            dropped_newest: counters.dropped_newest,
            dropped_reconnect: counters.dropped_reconnect,
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
