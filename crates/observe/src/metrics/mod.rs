//! Lock-free recorders of the data path, and the registries that hand them out.
//!
//! Recording one frame is a handful of relaxed atomic additions: no lock, no allocation, no system
//! call. Locks are taken only when a device or session is added or removed, and for a snapshot.
//! A snapshot can fall between two additions and be off by the frame that is being recorded; nothing
//! is ever lost.
mod collector;
mod device;
mod frames;
mod source;

pub use collector::{CollectorMetrics, SessionGuard};
pub use device::{DeviceMetrics, SourceTotals};
pub use frames::{FrameCounters, FrameObservation, LossCause};
pub use source::{DropCause, SourceDeviceMetrics, SourceMetrics};

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// A monotonic counter that any thread may add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number of things in use. Racing updates may make it negative for a moment.
#[derive(Debug, Default)]
pub(crate) struct InFlight(std::sync::atomic::AtomicI64);

impl InFlight {
    pub(crate) fn begin(&self, n: u64) {
        self.0.fetch_add(n.cast_signed(), Relaxed);
    }

    pub(crate) fn end(&self, n: u64) {
        self.0.fetch_sub(n.cast_signed(), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        u64::try_from(self.0.load(Relaxed)).unwrap_or(0)
    }
}

/// Returns the milliseconds since 1970, 0 for a clock set before that.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}
