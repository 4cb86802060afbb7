//! An open device and a protection domain, as the application and their objects hold them: they keep
//! each other alive. `context` opens devices, and has what they make.
use crate::DeviceCounters;
use crate::device::Device;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// An open RoCE device: one UDP port. The last handle, or object of it, closes the port and ends
/// the engine's thread.
pub struct RoceContext {
    device: Arc<Device>,
    thread: Option<JoinHandle<()>>,
    myself: Weak<RoceContext>,
}

impl RoceContext {
    pub(crate) fn of(device: Arc<Device>, thread: JoinHandle<()>) -> Arc<RoceContext> {
        Arc::new_cyclic(|myself| RoceContext {
            device,
            thread: Some(thread),
            myself: Weak::clone(myself),
        })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn strong(&self) -> Arc<RoceContext> {
        self.myself.upgrade().expect("a context that is used is alive")
    }

    /// Returns where the device listens.
    pub fn local_address(&self) -> SocketAddr {
        self.device.local
    }

    /// Returns what the device has counted. Takes the engine for a moment and looks at every queue
    /// pair: not for every packet.
    pub fn counters(&self) -> DeviceCounters {
        self.device.engine().counters(&self.device)
    }
}

impl Drop for RoceContext {
    fn drop(&mut self) {
        self.device.stop();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A protection domain.
pub(crate) struct RocePd {
    id: u64,
    context: Arc<RoceContext>,
    myself: Weak<RocePd>,
}

impl RocePd {
    pub(crate) fn new(id: u64, context: Arc<RoceContext>) -> Arc<RocePd> {
        Arc::new_cyclic(|myself| RocePd { id, context, myself: Weak::clone(myself) })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.context.device
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn strong(&self) -> Arc<RocePd> {
        self.myself.upgrade().expect("a protection domain that is used is alive")
    }
}
