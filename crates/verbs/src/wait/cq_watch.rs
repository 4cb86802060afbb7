//! Sleeping on a completion queue as on memory.
use crate::{CompletionChannel, Cq, Wake, Watch};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A completion queue with its channel, as a [`Watch`].
pub struct CqWatch {
    cq: Arc<dyn Cq>,
    channel: Arc<dyn CompletionChannel>,
}

impl CqWatch {
    /// Creates a watch on `cq`, which must have been created with `channel`.
    pub fn new(cq: Arc<dyn Cq>, channel: Arc<dyn CompletionChannel>) -> Self {
        Self { cq, channel }
    }
}

impl Watch for CqWatch {
    fn arm(&self) {
        self.cq.req_notify(false);
    }

    /// Does nothing: verbs cannot take a notification request back, so it stands until the next
    /// completion.
    fn disarm(&self) {}

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        let rung = self.channel.wait(timeout)?;
        Ok(if rung { Wake::Rung } else { Wake::TimedOut })
    }

    fn wake(&self) {
        self.channel.wake();
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.as_fd())
    }
}
