//! An open device and a protection domain, as held by the application and their objects: all keep
//! the device open. `context` creates objects from them.
use crate::device::Device;
use crate::events::EventThread;
use crate::sys::Domain;
use catchment_verbs::VerbsError;
use std::sync::Arc;

/// An open RDMA device with one of its ports and GIDs.
#[derive(Clone)]
pub struct IbverbsContext(Arc<Opened>);

struct Opened {
    /// Ends before the device does.
    _events: EventThread,
    device: Arc<Device>,
}

impl IbverbsContext {
    pub(crate) fn new(device: Arc<Device>) -> Result<Arc<Self>, VerbsError> {
        let events = EventThread::start(Arc::clone(&device))
            .map_err(|error| VerbsError::os("starting the thread for device events", error))?;
        Ok(Arc::new(Self(Arc::new(Opened { _events: events, device }))))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Returns the chosen device, port and index of the GID, as [`crate::IbverbsProvider`] opens
    /// them.
    pub fn place(&self) -> String {
        self.0.device.place.to_string()
    }
}

#[derive(Clone)]
pub(crate) struct IbPd {
    pub(crate) domain: Arc<Domain>,
    pub(crate) context: IbverbsContext,
}

impl IbPd {
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.context.device()
    }
}
