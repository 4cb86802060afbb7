//! Completion queues, and channels to sleep on for them.
use super::Fabric;
use catchment_verbs::provider::{CompletionQueue, EventChannel};
use catchment_verbs::{Completion, CompletionChannel, Cq, CqError};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How often a sleeping thread checks whether time can advance.
const NAP: Duration = Duration::from_millis(1);

pub(super) struct CqData {
    pub(super) device: u32,
    pub(super) queue: Arc<CompletionQueue>,
}

pub(super) struct SimChannel {
    pub(super) device: u32,
    pub(super) events: EventChannel,
    fabric: Fabric,
}

impl SimChannel {
    pub(super) fn new(fabric: Fabric, device: u32) -> io::Result<Self> {
        Ok(Self { device, events: EventChannel::new()?, fabric })
    }
}

impl CompletionChannel for SimChannel {
    /// Advances virtual time until there is a notification; waits for other threads in real time.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut left = timeout;
        loop {
            // Another thread may end and leave its last request to this one.
            let nap = left.min(NAP);
            let advance = || while !self.events.is_notified() && self.fabric.idle() {};
            if self.events.wait_with(nap, advance)? {
                return Ok(true);
            }
            left -= nap;
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    fn wake(&self) {
        self.events.notify();
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) struct SimCq {
    pub(super) fabric: Fabric,
    pub(super) device: u32,
    pub(super) id: u32,
    pub(super) queue: Arc<CompletionQueue>,
}

impl Cq for SimCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        let count = self.queue.poll(out)?;
        if count > 0 || !self.fabric.idle() {
            return Ok(count);
        }
        self.queue.poll(out)
    }

    fn req_notify(&self, solicited_only: bool) {
        self.queue.request_notify(solicited_only);
    }

    fn capacity(&self) -> u32 {
        self.queue.capacity()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SimCq {
    fn drop(&mut self) {
        self.fabric.world().cqs.remove(&self.id);
    }
}
