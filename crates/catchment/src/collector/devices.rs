//! The devices that a collector has met, by name.
use super::device::Device;
use crate::observe::{CollectorMetrics, DeviceMetrics};
use crate::sink::{Sink, SinkError};
use catchment_verbs::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Devices that a collector knows at most: peers choose the names, and each costs memory for ever.
const KNOWN_MAX: usize = 65_536;

/// A device cannot be received.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error("the collector already knows {KNOWN_MAX} devices, its limit")]
    TooMany,
}

/// All devices that a collector has met.
pub(super) struct Devices {
    sink: Box<dyn Sink>,
    metrics: Arc<CollectorMetrics>,
    known: Mutex<HashMap<String, Arc<Device>>>,
}

impl Devices {
    pub(super) fn new(sink: Box<dyn Sink>, metrics: Arc<CollectorMetrics>) -> Self {
        Self { sink, metrics, known: Mutex::default() }
    }

    /// The device of this name; its sink is opened when it is met for the first time. It counts as
    /// connected once its session is ready.
    pub(super) fn open(&self, name: &str, format: &str) -> Result<Arc<Device>, OpenError> {
        let mut known = self.known.lock();
        if let Some(device) = known.get(name) {
            self.add_metrics(name, format);
            return Ok(device.clone());
        }
        self.make_room(&mut known)?;
        let sink = self.sink.open(name)?;
        let metrics = self.add_metrics(name, format);
        let device = Arc::new(Device::new(name, metrics, sink));
        known.insert(name.to_owned(), device.clone());
        Ok(device)
    }

    fn add_metrics(&self, name: &str, format: &str) -> Arc<DeviceMetrics> {
        let metrics = self.metrics.add_device(name, format);
        metrics.set_connected(false);
        metrics
    }

    /// Forgets devices that no session has and that never sent a frame, once there are too many.
    fn make_room(&self, known: &mut HashMap<String, Arc<Device>>) -> Result<(), OpenError> {
        if known.len() < KNOWN_MAX {
            return Ok(());
        }
        known.retain(|name, device| {
            let stays = Arc::strong_count(device) > 1 || device.was_used();
            if !stays {
                self.metrics.remove_device(name);
            }
            stays
        });
        if known.len() < KNOWN_MAX {
            return Ok(());
        }
        Err(OpenError::TooMany)
    }
}
