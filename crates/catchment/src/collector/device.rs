//! A device as the collector knows it, across all sessions of its source.
use super::in_order::Tally;
use crate::{
    Frame,
    observe::{CollectorMetrics, DeviceMetrics, FrameObservation, preview::PixelSource},
    sink::{DeviceSink, Rejected, Sink, SinkError},
};
use catchment_transfer::ReceivedBlock;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// One device: its sink, its counters, and how far its stream is.
pub(super) struct Device {
    name: Arc<str>,
    metrics: Arc<DeviceMetrics>,
    /// In the hands of one worker at a time; the lock is never waited for.
    sink: Mutex<Box<dyn DeviceSink>>,
    /// First packet number that is not with the sink; [`UNKNOWN`] before the first frame.
    next_packet: AtomicU64,
}

/// No packet number.
const UNKNOWN: u64 = u64::MAX;

impl Device {
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn metrics(&self) -> &Arc<DeviceMetrics> {
        &self.metrics
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
        self.metrics.frames_skipped(tally.skipped);
        (0..tally.duplicates).for_each(|_| self.metrics.duplicate_discarded());
        (0..tally.reordered).for_each(|_| self.metrics.reordered());
    }

    /// Whether the block's bytes are what the source committed. A wrong one is counted.
    pub(super) fn verify(&self, block: &ReceivedBlock) -> bool {
        let intact = block.check_crc().is_ok();
        if !intact {
            self.metrics.checksum_error();
            tracing::error!(device = %self.name, packet = block.header().packet_number,
                "a block's checksum is wrong; the frame is not delivered");
        }
        intact
    }

    /// Gives a frame to the sink and counts it.
    pub(super) fn deliver(&self, frame: Frame, now_ns: u64) -> Result<(), Rejected> {
        let number = frame.packet_number();
        let observation = FrameObservation {
            bytes: frame.bytes() as u64,
            verified: frame.verified,
            captured_unix_ns: frame.capture_time_ns,
            delivered_unix_ns: now_ns,
        };
        let preview = self.metrics.preview();
        if preview.is_due() {
            preview.offer(frame.bytes(), &Pixels(&frame));
        }
        if let Err(rejected) = lock(&self.sink).accept(frame) {
            self.metrics.sink_error();
            return Err(rejected);
        }
        self.next_packet.store(number + 1, Ordering::Release);
        self.metrics.frame_received(&observation);
        Ok(())
    }
}

/// Lets the preview read a frame.
struct Pixels<'a>(&'a Frame);

impl PixelSource for Pixels<'_> {
    fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read_at(offset, out);
    }
}

/// All devices that a collector has met.
pub(super) struct Devices {
    sink: Box<dyn Sink>,
    metrics: Arc<CollectorMetrics>,
    known: Mutex<HashMap<String, Arc<Device>>>,
}

impl Devices {
    pub(super) fn new(sink: Box<dyn Sink>, metrics: Arc<CollectorMetrics>) -> Devices {
        Devices {
            sink,
            metrics,
            known: Mutex::default(),
        }
    }

    /// The device of this name; its sink is opened when it is met for the first time.
    pub(super) fn open(&self, name: &str, format: &str) -> Result<Arc<Device>, SinkError> {
        let metrics = self.metrics.add_device(name, format);
        let mut known = lock(&self.known);
        if let Some(device) = known.get(name) {
            return Ok(device.clone());
        }
        let sink = self.sink.open(name)?;
        let device = Arc::new(Device {
            name: name.into(),
            metrics,
            next_packet: AtomicU64::new(sink.next_packet().unwrap_or(UNKNOWN)),
            sink: Mutex::new(sink),
        });
        known.insert(name.to_owned(), device.clone());
        Ok(device)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
