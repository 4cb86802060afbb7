//! Completion queues of an application, and their channels.
use super::handles::AgentContext;
use super::link::Link;
use catchment_verbs::provider::{CompletionQueue, EventChannel};
use catchment_verbs::{Completion, CompletionChannel, Cq, CqError};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The application's completion queue.
pub(super) struct AgentCq {
    pub(super) queue: Arc<CompletionQueue>,
    /// A queue keeps the connection open.
    pub(super) context: AgentContext,
}

impl Cq for AgentCq {
    fn poll(&self, out: &mut [Completion]) -> Result<usize, CqError> {
        self.context.link().progress();
        self.queue.poll(out)
    }

    fn req_notify(&self, solicited_only: bool) {
        self.queue.request_notify(solicited_only);
        self.context.link().arm();
    }

    fn capacity(&self) -> u32 {
        self.queue.capacity()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The application's completion channel.
pub(super) struct AgentChannel {
    pub(super) events: EventChannel,
    pub(super) link: Arc<Link>,
}

impl CompletionChannel for AgentChannel {
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        // The agent clears the flag when it rings, and another queue may be what it rang for.
        self.events.wait_with(timeout, || self.link.arm())
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
