//! What a collector and a source tell about themselves: counters, latency, CPU, pictures, a live page.
//!
//! The data path records into atomics ([`DeviceMetrics`], [`SourceDeviceMetrics`]) and never waits.
//! Whoever wants to look takes a snapshot ([`CollectorSnapshot`], [`SourceSnapshot`]); the page, the
//! terminal, the final report and Prometheus all show the same one. Nothing runs while nobody looks.
//!
//! ```
//! use catchment::observe::{
//!     CollectorMetrics, Dashboard, DashboardConfig, FrameObservation, SessionSnapshot,
//! };
//!
//! let metrics = CollectorMetrics::new();
//! let page = Dashboard::start(DashboardConfig::default(), metrics.clone())?;
//! println!("live page: {}", page.url());
//!
//! let session = metrics.session_opened(SessionSnapshot::new("shm", "shm", "same host"));
//! let camera = metrics.add_device("cam0", "640x480:rgb24");
//! camera.frame_received(&FrameObservation {
//!     bytes: 921_600,
//!     verified: true,
//!     captured_unix_ns: 1_700_000_000_000_000_000,
//!     delivered_unix_ns: 1_700_000_000_000_180_000,
//! });
//! assert_eq!(metrics.snapshot().totals.frames_received, 1);
//!
//! metrics.remove_device("cam0");
//! drop(session);
//! page.stop();
//! # Ok::<(), catchment::observe::DashboardError>(())
//! ```

pub mod cpu;
mod dashboard;
mod metrics;
pub(crate) mod network;
pub mod preview;
pub mod prometheus;
mod sampler;
mod snapshot;

pub use dashboard::{Dashboard, DashboardConfig, DashboardError};
pub use metrics::{
    CollectorMetrics, DeviceMetrics, DropCause, FrameObservation, Histogram, HistogramSnapshot,
    SessionGuard, SourceDeviceMetrics, SourceMetrics, SourceTotals,
};
pub use network::{QueueSizes, RoceSnapshot, SessionSnapshot};
pub use sampler::{Sampler, SourceSampler};
pub use snapshot::{
    CollectorSnapshot, CpuSnapshot, DeviceCounters, DeviceSnapshot, LatencySummary, PathSnapshot,
    Recent, SourceCounters, SourceDeviceSnapshot, SourceSnapshot,
};
