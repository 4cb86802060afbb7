//! An open device and a protection domain, as the application and their objects hold them: all keep
//! the device open. `context` opens devices, and has what they make.
use crate::DeviceCounters;
use crate::device::Device;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

/// An open RoCE device: one UDP port. The last handle, or object of it, closes the port and ends
/// the engine's thread.
#[derive(Clone)]
pub struct RoceContext(Arc<Opened>);

struct Opened {
    device: Arc<Device>,
    thread: Option<JoinHandle<()>>,
}

impl RoceContext {
    pub(crate) fn of(device: Arc<Device>, thread: JoinHandle<()>) -> Arc<Self> {
        Arc::new(Self(Arc::new(Opened { device, thread: Some(thread) })))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Returns where the device listens.
    pub fn local_address(&self) -> SocketAddr {
        self.0.device.local
    }

    /// Returns what the device has counted. Locks the engine briefly and visits every queue
    /// pair: not for every packet.
    pub fn counters(&self) -> DeviceCounters {
        self.0.device.engine().counters(&self.0.device)
    }
}

impl Drop for Opened {
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
#[derive(Clone)]
pub(crate) struct RocePd {
    pub(crate) id: u64,
    pub(crate) context: RoceContext,
}

impl RocePd {
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.context.device()
    }
}
