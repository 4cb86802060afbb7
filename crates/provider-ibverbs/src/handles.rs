//! An open device and a protection domain, as the application and their objects hold them: they keep
//! each other alive. `context` has what they make.
use crate::device::Device;
use crate::events::EventThread;
use crate::sys::Domain;
use catchment_verbs::VerbsError;
use std::sync::{Arc, Weak};

/// An open RDMA device with one of its ports and GIDs.
pub struct IbverbsContext {
    /// Ends before the device does.
    _events: EventThread,
    device: Arc<Device>,
    myself: Weak<IbverbsContext>,
}

impl IbverbsContext {
    pub(crate) fn new(device: Arc<Device>) -> Result<Arc<IbverbsContext>, VerbsError> {
        let events = EventThread::start(Arc::clone(&device))
            .map_err(|error| VerbsError::os("starting the thread for device events", error))?;
        Ok(Arc::new_cyclic(|myself| IbverbsContext {
            _events: events,
            device,
            myself: Weak::clone(myself),
        }))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The device, port and index of the GID that were chosen, as [`crate::IbverbsProvider`] opens
    /// them.
    pub fn place(&self) -> String {
        self.device.place.to_string()
    }

    pub(crate) fn strong(&self) -> Arc<IbverbsContext> {
        self.myself.upgrade().expect("a context that is used is alive")
    }
}

pub(crate) struct IbPd {
    domain: Arc<Domain>,
    context: Arc<IbverbsContext>,
    myself: Weak<IbPd>,
}

impl IbPd {
    pub(crate) fn new(domain: Arc<Domain>, context: Arc<IbverbsContext>) -> Arc<IbPd> {
        Arc::new_cyclic(|myself| IbPd { domain, context, myself: Weak::clone(myself) })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.context.device
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn strong(&self) -> Arc<IbPd> {
        self.myself.upgrade().expect("a protection domain that is used is alive")
    }
}
