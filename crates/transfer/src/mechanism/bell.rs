//! A doorbell between two threads of one process.
use catchment_verbs::{VerbsError, Wake, Watch, event};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
    time::Duration,
};

/// Rung by one thread, slept on by another. Costs a fence and a load while nobody sleeps.
pub(crate) struct Bell {
    armed: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    /// # Errors
    /// When no descriptor is left.
    pub(crate) fn new() -> Result<Arc<Bell>, VerbsError> {
        Ok(Arc::new(Bell {
            armed: AtomicBool::new(false),
            event: event::event_fd().map_err(|e| VerbsError::os("an event counter", e))?,
        }))
    }

    /// Makes the caller's earlier stores visible, then wakes the sleeper.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            event::ring(&self.event);
        }
    }
}

impl Watch for Bell {
    fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        event::wait(self.event.as_fd(), timeout)
    }

    fn wake(&self) {
        event::ring(&self.event);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
