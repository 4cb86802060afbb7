//! Metrics of a collector and a source: counters, latency, processor time, pictures, a live page.
//!
//! - In: the data path records into atomics ([`DeviceMetrics`], [`SourceDeviceMetrics`]) and never
//!   waits; sessions are reported as [`SessionSnapshot`], and the numbers of network devices are
//!   queried as [`RoceSnapshot`].
//! - Out: one snapshot of all numbers ([`CollectorSnapshot`], [`SourceSnapshot`]), which the page, the
//!   terminal, the final report and Prometheus ([`prometheus`]) all show.
//! - Promises: recording takes no lock and does not allocate, and counting a frame costs some tens of
//!   nanoseconds; counters only grow; without a viewer nothing runs, pictures included.
//!
//! The snapshots are plain data: this crate knows neither sessions nor providers; the crates that do
//! fill them in. The web server and the picture codec come with the feature `live-page`.
//!
//! ```
//! # #[cfg(feature = "live-page")] {
//! use catchment_observe::{
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
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod cpu;
#[cfg(feature = "live-page")]
mod dashboard;
mod granting;
mod histogram;
mod ledger;
mod metrics;
mod network;
pub mod preview;
pub mod prometheus;
mod sampler;
mod snapshot;
mod sync;

#[cfg(feature = "live-page")]
pub use dashboard::{
    Dashboard, DashboardConfig, DashboardError, ExplainError, PageTls, StatusPage, StatusSource,
    StatusView,
};
pub use granting::{GrantSnapshot, Granting, Standing};
pub use histogram::{Histogram, HistogramSnapshot};
pub use ledger::{Ledger, Unaccounted};
pub use metrics::{
    CollectorMetrics, DeviceMetrics, DropCause, FrameCounters, FrameObservation, LossCause,
    SessionGuard, SourceDeviceMetrics, SourceMetrics, SourceTotals,
};
pub use network::{QueueSizes, RoceSnapshot, SessionSnapshot};
pub use sampler::{Sampler, SourceSampler};
pub use snapshot::{
    CollectorSnapshot, CpuSnapshot, DeviceCounters, DeviceSnapshot, LatencySummary, PathSnapshot,
    Recent, SourceCounters, SourceDeviceSnapshot, SourceSnapshot,
};
