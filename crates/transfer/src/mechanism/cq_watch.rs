//! Sleeping on a completion queue as on memory.
use catchment_verbs::{CompletionChannel, Cq, Wake, Watch};
use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

/// A completion queue with its channel, as a [`Watch`].
pub(crate) struct CqWatch {
    cq: Arc<dyn Cq>,
    channel: Arc<dyn CompletionChannel>,
}

impl CqWatch {
    /// The channel is that of the queue.
    pub(crate) fn new(cq: Arc<dyn Cq>, channel: Arc<dyn CompletionChannel>) -> CqWatch {
        CqWatch { cq, channel }
    }
}

impl Watch for CqWatch {
    fn arm(&self) {
        self.cq.req_notify(false);
    }

    /// The arming stands until the next completion: verbs cannot take it back.
    fn disarm(&self) {}

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        let rung = self.channel.wait(timeout)?;
        Ok(if rung { Wake::Rung } else { Wake::TimedOut })
    }

    fn wake(&self) {
        self.channel.wake();
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
