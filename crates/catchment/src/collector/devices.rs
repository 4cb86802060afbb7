//! The devices of a collector, by name.
//!
//! Peers choose the names. What a Hello asks for is only looked up; it becomes a device of the collector
//! once its session is ready, and is forgotten with the session unless a frame came.
use super::device::{AtFirst, Device};
use super::owners::{NotYours, Owners, Reservation};
use crate::observe::{CollectorMetrics, DeviceMetrics};
use crate::sink::{DeviceSink, Sink, SinkError};
use catchment_verbs::sync::Mutex;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

/// Devices that a collector knows at most.
const KNOWN_MAX: usize = 65_536;
/// Devices that one source, and one certificate, may have by default.
pub(super) const OF_ONE_SOURCE: usize = 4096;

/// Devices cannot be received.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error("the collector already knows {KNOWN_MAX} devices, its limit")]
    TooMany,
    #[error("Hello names {asked} devices; this collector takes {most} of one source")]
    OfOneSource { asked: usize, most: usize },
    #[error(transparent)]
    NotYours(#[from] NotYours),
}

/// All devices that have sent a frame, or may at any moment.
pub(super) struct Devices {
    sink: Box<dyn Sink>,
    metrics: Arc<CollectorMetrics>,
    of_one_source: usize,
    owners: Arc<Owners>,
    known: Mutex<HashMap<Arc<str>, Arc<Device>>>,
}

/// The devices of a Hello. Dropping it leaves nothing.
pub(super) struct Asked {
    devices: Vec<AskedDevice>,
    reserved: Option<Reservation>,
}

/// One of them.
enum AskedDevice {
    Known(Arc<Device>, String),
    New { name: String, format: String, sink: Box<dyn DeviceSink> },
}

/// The devices of a session. Dropping it forgets those that no frame came for.
pub(super) struct Admitted {
    list: Vec<Arc<Device>>,
    of: Arc<Devices>,
    reserved: Option<Reservation>,
}

impl Devices {
    pub(super) fn new(
        sink: Box<dyn Sink>,
        metrics: Arc<CollectorMetrics>,
        of_one_source: usize,
        owners: Arc<Owners>,
    ) -> Self {
        Self { sink, metrics, of_one_source, owners, known: Mutex::default() }
    }

    /// Looks up the devices of a Hello, each with its format. No other session may have them.
    pub(super) fn look_up(
        &self,
        wanted: Vec<(String, String)>,
        certificate: Option<&str>,
    ) -> Result<Asked, OpenError> {
        let (asked, most) = (wanted.len(), self.of_one_source);
        if asked > most {
            return Err(OpenError::OfOneSource { asked, most });
        }
        let names = wanted.iter().map(|(name, _)| name.as_str());
        let reserved =
            certificate.map(|owner| self.owners.reserve(owner, names, most)).transpose()?;
        let look_up = |(name, format): (String, String)| {
            let known = self.known.lock().get(name.as_str()).cloned();
            if let Some(device) = known {
                return Ok(AskedDevice::Known(device, format));
            }
            let sink = self.sink.open(&name)?;
            Ok(AskedDevice::New { name, format, sink })
        };
        let devices = wanted.into_iter().map(look_up).collect::<Result<_, SinkError>>()?;
        Ok(Asked { devices, reserved })
    }

    /// Makes them devices of the collector. They count as connected once their session is ready.
    pub(super) fn admit(self: &Arc<Self>, asked: Asked) -> Result<Admitted, OpenError> {
        let mut known = self.known.lock();
        self.make_room(&mut known, asked.devices.len())?;
        let admit = |device: AskedDevice| {
            let (device, format) = match device {
                AskedDevice::Known(device, format) => {
                    self.add_metrics(&device.name, &format);
                    (device, format)
                }
                AskedDevice::New { name, format, sink } => {
                    let metrics = self.add_metrics(&name, &format);
                    (Arc::new(Device::new(&name, metrics, sink)), format)
                }
            };
            // Also one that was forgotten since it was looked up.
            known.entry(device.name.clone()).or_insert_with(|| device.clone());
            device.describe(&format);
            device
        };
        let list = asked.devices.into_iter().map(admit).collect();
        Ok(Admitted { list, of: self.clone(), reserved: asked.reserved })
    }

    fn add_metrics(&self, name: &str, format: &str) -> Arc<DeviceMetrics> {
        let metrics = self.metrics.add_device(name, format);
        metrics.set_connected(false);
        metrics
    }

    /// Returns the devices whose sink refuses their frames now, and why.
    pub(super) fn refusing(&self) -> Vec<(Arc<str>, String)> {
        let known = self.known.lock();
        let refusing = known.values().filter_map(|d| Some((d.name.clone(), d.refused()?)));
        let mut refusing: Vec<_> = refusing.collect();
        refusing.sort();
        refusing
    }

    /// Returns how many frames were here, were asked for again, and did not come.
    pub(super) fn left(&self) -> u64 {
        self.known.lock().values().map(|device| device.left()).sum()
    }

    /// Forgets devices without a session of which the sink knows where they go on, if there are too many.
    fn make_room(
        &self,
        known: &mut HashMap<Arc<str>, Arc<Device>>,
        more: usize,
    ) -> Result<(), OpenError> {
        if known.len() + more <= KNOWN_MAX {
            return Ok(());
        }
        known.retain(|name, device| {
            let stays = Arc::strong_count(device) > 1 || !device.is_stored();
            if !stays {
                self.metrics.frames_given_up(device.left());
                self.metrics.remove_device(name);
            }
            stays
        });
        if known.len() + more <= KNOWN_MAX { Ok(()) } else { Err(OpenError::TooMany) }
    }
}

impl Asked {
    /// Returns how far each device is.
    pub(super) fn next_packets(&self) -> impl Iterator<Item = Option<u64>> {
        self.devices.iter().map(|device| match device {
            AskedDevice::Known(device, _) => device.next_packet(),
            AskedDevice::New { sink, .. } => sink.next_packet(),
        })
    }
}

impl Deref for Admitted {
    type Target = [Arc<Device>];

    fn deref(&self) -> &[Arc<Device>] {
        &self.list
    }
}

impl Admitted {
    /// Returns what makes the name of a device that of the source's certificate.
    pub(super) fn binding(&self, device: &Arc<str>) -> Option<AtFirst> {
        self.reserved.as_ref()?;
        let (owners, device) = (self.of.owners.clone(), device.clone());
        Some(Box::new(move || owners.bind(&device)))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let unused = self.list.drain(..).filter(|device| !device.was_used());
        // The names alone: nobody counts in their metrics any more.
        let unused: Vec<_> = unused.map(|device| device.name.clone()).collect();
        let mut known = self.of.known.lock();
        for name in unused {
            known.remove(&name);
            self.of.metrics.remove_device(&name);
        }
    }
}
