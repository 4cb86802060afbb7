//! Metrics of a source.
use super::{Counter, InFlight, unix_ms};
use crate::granting::{GrantSnapshot, Granting, Stands};
use crate::network::{Devices, RoceSnapshot, SessionSnapshot};
use crate::snapshot::{SourceCounters, SourceDeviceSnapshot, SourceSnapshot};
use crate::sync::{lock, read, write};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// Why a source dropped a frame: the policy of its device when no block was free, or that of a transmission controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// The oldest waiting frame made room for this one.
    Oldest,
    /// The new frame was rejected.
    Newest,
    /// It was sent over a connection that broke, and gave way to newer ones instead of being sent
    /// again. It counts as sent too.
    Reconnect,
    /// It could not be there by its deadline any more, and a transmission controller drops such frames of its class. It
    /// counts as sent too.
    Late,
}

#[derive(Debug, Default)]
struct Sent {
    frames: Counter,
    bytes: Counter,
    dropped_oldest: Counter,
    dropped_newest: Counter,
    dropped_reconnect: Counter,
    dropped_late: Counter,
    numbered: AtomicU64,
    delivered: AtomicU64,
    lost: AtomicU64,
    missed: Counter,
    waits: Counter,
    wait_ns: Counter,
}

/// Counters of one device at the source. Lock-free; shared by the threads that fill its frames.
#[derive(Debug)]
pub struct SourceDeviceMetrics {
    name: Arc<str>,
    format: Arc<str>,
    sent: CachePadded<Sent>,
    blocks: CachePadded<InFlight>,
}

impl SourceDeviceMetrics {
    fn new(name: &str, format: &str) -> Self {
        Self {
            name: name.into(),
            format: format.into(),
            sent: CachePadded::default(),
            blocks: CachePadded::default(),
        }
    }

    /// Counts a frame of `bytes` that was handed to the queue pair.
    pub fn frame_sent(&self, bytes: u64) {
        self.sent.frames.add(1);
        self.sent.bytes.add(bytes);
    }

    /// Returns how many frames were handed to the queue pair.
    pub fn frames_sent(&self) -> u64 {
        self.sent.frames.get()
    }

    /// Counts a dropped frame.
    pub fn frame_dropped(&self, cause: DropCause) {
        match cause {
            DropCause::Oldest => self.sent.dropped_oldest.add(1),
            DropCause::Newest => self.sent.dropped_newest.add(1),
            DropCause::Reconnect => self.sent.dropped_reconnect.add(1),
            DropCause::Late => self.sent.dropped_late.add(1),
        }
    }

    /// Returns how many frames were dropped as too late.
    pub fn dropped_late(&self) -> u64 {
        self.sent.dropped_late.get()
    }

    /// Notes that so many frames are lost, as far as is known now.
    pub fn lost_at_least(&self, frames: u64) {
        self.sent.lost.fetch_max(frames, Relaxed);
    }

    /// Notes at the end how many packet numbers were used, and how many frames were delivered, as the
    /// collector says.
    pub fn settled(&self, numbered: u64, delivered: u64) {
        self.sent.numbered.store(numbered, Relaxed);
        self.sent.delivered.store(delivered, Relaxed);
    }

    /// Counts a frame that cannot be there by its deadline.
    pub fn deadline_missed(&self) {
        self.sent.missed.add(1);
    }

    /// Counts a wait of this length for a free block.
    pub fn waited_for_block(&self, wait: Duration) {
        self.sent.waits.add(1);
        self.sent.wait_ns.add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts blocks written to the collector and not yet seen free again.
    pub fn blocks_taken(&self, blocks: u64) {
        self.blocks.begin(blocks);
    }

    /// Counts blocks seen free again.
    pub fn blocks_released(&self, blocks: u64) {
        self.blocks.end(blocks);
    }

    /// Returns all numbers of the device at this moment.
    pub fn snapshot(&self) -> SourceDeviceSnapshot {
        SourceDeviceSnapshot {
            name: self.name.to_string(),
            format: self.format.to_string(),
            counters: SourceCounters {
                frames_sent: self.sent.frames.get(),
                bytes_sent: self.sent.bytes.get(),
                dropped_oldest: self.sent.dropped_oldest.get(),
                dropped_newest: self.sent.dropped_newest.get(),
                dropped_reconnect: self.sent.dropped_reconnect.get(),
                dropped_late: self.sent.dropped_late.get(),
                frames_numbered: self.sent.numbered.load(Relaxed),
                frames_delivered: self.sent.delivered.load(Relaxed),
                frames_lost: self.sent.lost.load(Relaxed),
                deadlines_missed: self.sent.missed.get(),
                block_waits: self.sent.waits.get(),
                block_wait_ns: self.sent.wait_ns.get(),
            },
            blocks_in_flight: self.blocks.get(),
        }
    }
}

/// All numbers of one source. Create one per source and share it.
#[derive(Debug)]
pub struct SourceMetrics {
    started: Instant,
    devices: RwLock<BTreeMap<Arc<str>, Arc<SourceDeviceMetrics>>>,
    status_reads: CachePadded<Counter>,
    reconnects: Counter,
    session: Mutex<Option<SessionSnapshot>>,
    grant: Mutex<Option<Stands>>,
    network: Devices,
}

impl SourceMetrics {
    /// Creates the metrics of a source that starts now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            devices: RwLock::default(),
            status_reads: CachePadded::default(),
            reconnects: Counter::default(),
            session: Mutex::default(),
            grant: Mutex::default(),
            network: Devices::default(),
        })
    }

    /// Adds device `name` and returns its recorder; the same one for the same name. Takes a lock;
    /// keep the `Arc`.
    pub fn add_device(&self, name: &str, format: &str) -> Arc<SourceDeviceMetrics> {
        let create = || Arc::new(SourceDeviceMetrics::new(name, format));
        write(&self.devices).entry(name.into()).or_insert_with(create).clone()
    }

    /// Counts READs of the collector's status bytes.
    pub fn status_reads(&self, reads: u64) {
        self.status_reads.add(reads);
    }

    /// Counts a session that was opened after an earlier one broke.
    pub fn reconnected(&self) {
        self.reconnects.add(1);
    }

    /// Sets the function that returns the numbers of RoCEv2 devices.
    pub fn set_network(&self, ask: impl Fn() -> Vec<RoceSnapshot> + Send + Sync + 'static) {
        self.network.set(ask);
    }

    /// Says that the queue pairs of RoCEv2 devices are gone, and the devices go next: their numbers of now are the last.
    pub fn network_ends(&self) {
        self.network.end();
    }

    /// Sets the session that frames go through from now on; `None`: there is none.
    pub fn session_is(&self, session: Option<SessionSnapshot>) {
        *lock(&self.session) = session;
    }

    /// Sets how the source stands with its transmission controller.
    pub fn granting_is(&self, granting: Granting) {
        let mut grant = lock(&self.grant);
        let stands = Stands::new(granting, grant.as_ref(), unix_ms());
        *grant = Some(stands);
    }

    /// Returns how the source stands with its transmission controller; `None` without one.
    pub fn grant(&self) -> Option<GrantSnapshot> {
        lock(&self.grant).as_ref().map(Stands::snapshot)
    }

    /// Returns all numbers at this moment. CPU is `None`, see [`SourceSampler`](crate::SourceSampler).
    pub fn snapshot(&self) -> SourceSnapshot {
        let recorders: Vec<_> = read(&self.devices).values().cloned().collect();
        let devices: Vec<_> = recorders.iter().map(|device| device.snapshot()).collect();
        let mut totals = SourceCounters::default();
        for device in &devices {
            totals += &device.counters;
        }
        SourceSnapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            unix_ms: unix_ms(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            status_reads: self.status_reads.get(),
            reconnects: self.reconnects.get(),
            session: lock(&self.session).clone(),
            grant: self.grant(),
            roce: self.network.ask(),
            totals,
            cpu: None,
            devices,
        }
    }
}
