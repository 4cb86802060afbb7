//! Metrics of the whole collector: sessions, refusals, paths, and the registry of devices.
use super::{Counter, DeviceMetrics, unix_ms};
use crate::histogram::HistogramSnapshot;
use crate::network::{Devices, RoceSnapshot, SessionSnapshot};
use crate::snapshot::{CollectorSnapshot, DeviceCounters, LatencySummary, PathSnapshot};
use crate::sync::{lock, read, write};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

/// Distinct paths that are counted; more are a sign of free text in the reasons, and are counted
/// together.
const PATHS_MAX: usize = 64;

const SESSIONS_SHOWN: usize = 256;

/// A path: the collector's provider, the source's, and the reason why they were chosen.
type Path = (String, String, String);

/// The open sessions, and those opened last, in the order in which they were opened.
#[derive(Debug, Default)]
struct Sessions {
    opened: u64,
    open: BTreeMap<u64, SessionSnapshot>,
    latest: VecDeque<SessionSnapshot>,
}

/// Devices that were removed. A recorder counts until its last holder drops it.
#[derive(Debug, Default)]
struct Retired {
    held: Vec<Arc<DeviceMetrics>>,
    counters: DeviceCounters,
    latency: HistogramSnapshot,
}

impl Retired {
    fn fold(&mut self) {
        let (held, done) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|device| Arc::strong_count(device) > 1);
        self.held = held;
        for device in &done {
            let last = device.snapshot();
            self.counters += &last.counters;
            self.latency.merge(&last.histogram);
        }
    }
}

/// All numbers of one collector. Create one per collector and share it.
#[derive(Debug)]
pub struct CollectorMetrics {
    started: Instant,
    devices: RwLock<BTreeMap<Arc<str>, Arc<DeviceMetrics>>>,
    devices_ever: Counter,
    retired: Mutex<Retired>,
    paths: Mutex<BTreeMap<Path, PathSnapshot>>,
    sessions: Mutex<Sessions>,
    network: Devices,
    refused: Mutex<BTreeMap<&'static str, u64>>,
    given_up: Counter,
}

impl CollectorMetrics {
    /// Creates the metrics of a collector that starts now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            devices: RwLock::default(),
            devices_ever: Counter::default(),
            retired: Mutex::default(),
            paths: Mutex::default(),
            sessions: Mutex::default(),
            network: Devices::default(),
            refused: Mutex::default(),
            given_up: Counter::default(),
        })
    }

    /// Adds device `name`, marked as connected, and returns its recorder. A known device keeps its
    /// counters and gets the new `format` (such as `640x480:rgb24`). Takes a lock;
    /// keep the `Arc`.
    pub fn add_device(&self, name: &str, format: &str) -> Arc<DeviceMetrics> {
        let mut devices = write(&self.devices);
        if let Some(known) = devices.get(name) {
            known.set_format(format);
            known.set_connected(true);
            return known.clone();
        }
        self.devices_ever.add(1);
        let device = Arc::new(DeviceMetrics::new(self.devices_ever.get(), name, format));
        devices.insert(name.into(), device.clone());
        device
    }

    /// Returns the recorder of a device, if there is one of that name.
    pub fn device(&self, name: &str) -> Option<Arc<DeviceMetrics>> {
        read(&self.devices).get(name).cloned()
    }

    /// Removes a device from page and metrics; its counts stay in the totals, and so does what is still
    /// recorded through a remaining `Arc`. Returns whether it was known.
    pub fn remove_device(&self, name: &str) -> bool {
        // Under the same lock as a snapshot's copy: a frame is in one of the two, never in both.
        let mut devices = write(&self.devices);
        let Some(removed) = devices.remove(name) else { return false };
        // One that nobody counts in and never did leaves nothing, however many come and go.
        let counts = removed.snapshot().counters != DeviceCounters::default();
        if counts || Arc::strong_count(&removed) > 1 {
            lock(&self.retired).held.push(removed);
        }
        true
    }

    /// Counts a session as open until the guard is dropped.
    pub fn session_opened(self: &Arc<Self>, session: SessionSnapshot) -> SessionGuard {
        let mut paths = lock(&self.paths);
        let SessionSnapshot { provider, source_provider, reason, .. } = session.clone();
        let mut path = (provider, source_provider, reason);
        if paths.len() >= PATHS_MAX && !paths.contains_key(&path) {
            path.2 = "other".to_owned();
        }
        let usage = paths.entry(path.clone()).or_insert_with_key(|path| {
            let (provider, source_provider, reason) = path.clone();
            PathSnapshot { provider, source_provider, reason, sessions_open: 0, sessions_total: 0 }
        });
        usage.sessions_open += 1;
        usage.sessions_total += 1;
        drop(paths);
        let mut sessions = lock(&self.sessions);
        sessions.opened += 1;
        let id = sessions.opened;
        if sessions.latest.len() == SESSIONS_SHOWN {
            sessions.latest.pop_front();
        }
        sessions.latest.push_back(session.clone());
        sessions.open.insert(id, session);
        SessionGuard { metrics: self.clone(), path, id }
    }

    /// Returns the sessions that were opened after the first `seen` ones, and how many were opened
    /// so far: the next `seen`. Of more than 256 only the latest, whether still open or not.
    pub fn sessions_since(&self, seen: u64) -> (Vec<SessionSnapshot>, u64) {
        let sessions = lock(&self.sessions);
        let new = usize::try_from(sessions.opened - seen.min(sessions.opened));
        let known = sessions.latest.len();
        let skipped = known - new.unwrap_or(known).min(known);
        let latest = sessions.latest.iter().skip(skipped);
        (latest.cloned().collect(), sessions.opened)
    }

    /// Sets the function that returns the numbers of RoCEv2 devices.
    pub fn set_network(&self, ask: impl Fn() -> Vec<RoceSnapshot> + Send + Sync + 'static) {
        self.network.set(ask);
    }

    /// Says that the queue pairs of RoCEv2 devices are gone, and the devices go next: their numbers of now are the last.
    pub fn network_ends(&self) {
        self.network.end();
    }

    /// Counts a source that was refused. `code` is the reason code of the session protocol.
    pub fn session_refused(&self, code: &'static str) {
        *lock(&self.refused).entry(code).or_default() += 1;
    }

    /// Counts frames that were here and that no sink took before the collector ended.
    pub fn frames_given_up(&self, frames: u64) {
        self.given_up.add(frames);
    }

    /// Returns all recorders, and the counts of removed devices.
    fn collect(&self) -> (Vec<Arc<DeviceMetrics>>, DeviceCounters, HistogramSnapshot) {
        let devices = read(&self.devices);
        let live = devices.values().cloned().collect();
        let mut retired = lock(&self.retired);
        retired.fold();
        let (mut counters, mut latency) = (retired.counters, retired.latency.clone());
        for device in &retired.held {
            let last = device.snapshot();
            counters += &last.counters;
            latency.merge(&last.histogram);
        }
        (live, counters, latency)
    }

    /// Returns all numbers at this moment. Rates and CPU are `None`: they need two samples, see
    /// [`Sampler`](crate::Sampler).
    pub fn snapshot(&self) -> CollectorSnapshot {
        let (recorders, mut totals, mut histogram) = self.collect();
        let devices: Vec<_> = recorders.iter().map(|device| device.snapshot()).collect();
        for device in &devices {
            totals += &device.counters;
            histogram.merge(&device.histogram);
        }
        let paths: Vec<PathSnapshot> = lock(&self.paths).values().cloned().collect();
        let refused = lock(&self.refused).clone();
        let sessions = lock(&self.sessions);
        let sessions = sessions.open.values().take(SESSIONS_SHOWN).cloned().collect();
        CollectorSnapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            unix_ms: unix_ms(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            sessions_open: paths.iter().map(|p| p.sessions_open).sum(),
            sessions_total: paths.iter().map(|p| p.sessions_total).sum(),
            sessions_refused: refused.into_iter().map(|(code, n)| (code.to_owned(), n)).collect(),
            paths,
            sessions,
            roce: self.network.ask(),
            frames_given_up: self.given_up.get(),
            totals,
            latency: LatencySummary::of(&histogram),
            recent: None,
            cpu: None,
            devices,
            histogram,
        }
    }
}

/// An open session; dropping it counts the session as closed.
#[derive(Debug)]
pub struct SessionGuard {
    metrics: Arc<CollectorMetrics>,
    path: Path,
    id: u64,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        if let Some(usage) = lock(&self.metrics.paths).get_mut(&self.path) {
            usage.sessions_open = usage.sessions_open.saturating_sub(1);
        }
        lock(&self.metrics.sessions).open.remove(&self.id);
    }
}
