//! What the controller says, on its way to the application: counters, how the source stands, and deadlines missed.
use catchment_observe::{DropCause, Granting, SourceDeviceMetrics, SourceMetrics};
use catchment_transfer::HeldBlock;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Of a device, so many of the newest frames that missed their deadlines are known.
const KNOWN_MOST: usize = 4096;

/// A frame that cannot be at the collector by its deadline, as the transmission controller says, or that was not at its
/// turn there when the deadline was over: a collector hands out the frames of a device in order. It is sent all the
/// same, behind those that can be in time, unless the controller says that late ones of its class are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missed<'a> {
    /// Its device.
    pub device: &'a str,
    /// Its packet number, as `Sent::Accepted` told it.
    pub packet_number: u64,
    /// When it was captured.
    pub captured: SystemTime,
    /// How long from now until it will be there, about; zero when it should be there by now. Of a frame of several
    /// blocks it is the time until the first that comes too late.
    pub left: Duration,
    /// It is not sent: nothing of it was, and late frames of its class are dropped. A frame may be told as late first,
    /// and as dropped later.
    pub dropped: bool,
}

/// Called for each such frame.
#[derive(Clone)]
pub struct OnMissed(Arc<dyn Fn(Missed<'_>) + Send + Sync>);

impl OnMissed {
    /// Makes it of a function, which may be called on another thread.
    pub fn new(call: impl Fn(Missed<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }
}

impl fmt::Debug for OnMissed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnMissed")
    }
}

struct Device {
    name: String,
    metrics: Arc<SourceDeviceMetrics>,
    /// Packet numbers of frames that were told.
    missed: BTreeSet<u64>,
}

/// Tells the application.
pub struct Told {
    metrics: Arc<SourceMetrics>,
    devices: Vec<Device>,
    on_missed: Option<OnMissed>,
    last: Option<Granting>,
}

impl Told {
    /// Takes the names and numbers of the devices in the order in which they register.
    pub fn new(
        metrics: &Arc<SourceMetrics>,
        devices: impl Iterator<Item = (String, Arc<SourceDeviceMetrics>)>,
        on_missed: Option<OnMissed>,
    ) -> Self {
        metrics.granting_is(Granting::default());
        let devices = devices
            .map(|(name, metrics)| Device { name, metrics, missed: BTreeSet::new() })
            .collect();
        Self { metrics: metrics.clone(), devices, on_missed, last: None }
    }

    /// Tells how the source stands, if that has changed.
    pub(super) fn stands(&mut self, granting: Granting) {
        if self.last.replace(granting) != Some(granting) {
            self.metrics.granting_is(granting);
        }
    }

    /// Tells that a block of a frame comes too late; each frame once, also where it has several blocks or is sent again.
    pub(super) fn missed(&mut self, at: u32, block: &HeldBlock, left: Duration) {
        if self.count_missed(at, block.packet_number) {
            self.call(at, block, left, false);
        }
    }

    /// Tells that a frame comes too late and is not sent.
    pub(super) fn dropped(&mut self, at: u32, block: &HeldBlock) {
        let Some(device) = self.devices.get(at as usize) else { return };
        device.metrics.frame_dropped(DropCause::Late);
        self.count_missed(at, block.packet_number);
        self.call(at, block, Duration::ZERO, true);
    }

    /// Returns whether this is the first that is known of the frame.
    fn count_missed(&mut self, at: u32, packet_number: u64) -> bool {
        let Some(device) = self.devices.get_mut(at as usize) else { return false };
        if !device.missed.insert(packet_number) {
            return false;
        }
        if device.missed.len() > KNOWN_MOST {
            device.missed.pop_first();
        }
        device.metrics.deadline_missed();
        true
    }

    fn call(&self, at: u32, block: &HeldBlock, left: Duration, dropped: bool) {
        let HeldBlock { packet_number, capture_time_ns, .. } = *block;
        let Some(device) = self.devices.get(at as usize) else { return };
        let Some(OnMissed(call)) = &self.on_missed else { return };
        let captured = UNIX_EPOCH + Duration::from_nanos(capture_time_ns);
        let missed = Missed { device: &device.name, packet_number, captured, left, dropped };
        if catch_unwind(AssertUnwindSafe(|| call(missed))).is_err() {
            tracing::error!(device = device.name, packet_number, "on_missed panicked");
        }
    }
}
