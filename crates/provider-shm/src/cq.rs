//! The application's completion queues and channels.
use crate::cq_core::{ChannelCore, CqCore};
use crate::handles::ShmContext;
use catchment_verbs::{Completion, CompletionChannel, Cq, CqError};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The application's completion queue.
pub(crate) struct ShmCq {
    pub(crate) core: Arc<CqCore>,
    /// A queue keeps the device open.
    pub(crate) _context: ShmContext,
}

impl Cq for ShmCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        self.core.poll(out)
    }

    fn req_notify(&self, solicited_only: bool) {
        self.core.req_notify(solicited_only);
    }

    fn capacity(&self) -> u32 {
        self.core.queue.capacity()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The application's completion channel.
pub(crate) struct ShmChannel(pub(crate) Arc<ChannelCore>);

impl ShmChannel {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(ChannelCore::new()?)))
    }
}

impl CompletionChannel for ShmChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        self.0.events.wait_with(timeout, || self.0.progress())
    }

    fn wake(&self) {
        self.0.events.notify();
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.events.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
