//! The application's registered regions.
use crate::handles::RocePd;
use crate::region::MrCore;
use catchment_verbs::mem::Region;
use catchment_verbs::wait::Doorbell;
use catchment_verbs::{Access, Mr, Wake, Watch};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// The application's registered region.
pub(crate) struct RoceMr {
    pub(crate) core: Arc<MrCore>,
    pub(crate) pd: RocePd,
    /// Of a window: the region that it is bound to.
    pub(crate) _of: Option<Arc<dyn Mr>>,
}

impl Drop for RoceMr {
    /// Waits for the engine's current turn: afterwards no peer reaches the memory.
    fn drop(&mut self) {
        self.core.deregister();
        self.pd.device().keys_mut().remove(self.core.key);
        fence(Ordering::SeqCst);
        self.core.ring_fenced();
    }
}

impl Mr for RoceMr {
    fn region(&self) -> &Arc<Region> {
        &self.core.region
    }

    fn lkey(&self) -> u32 {
        self.core.key
    }

    fn rkey(&self) -> u32 {
        self.core.key
    }

    fn access(&self) -> Access {
        self.core.access
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        if !self.pd.device().options.doorbell {
            return None;
        }
        let watch = self.core.watch();
        let watch = watch
            .inspect_err(|error| tracing::warn!(%error, "cannot create an eventfd for a watch"))
            .ok()?;
        Some(Arc::new(RoceWatch { bell: Arc::clone(watch), pd: self.pd.clone() }))
    }

    fn watch_ends(&self, from: usize, every: usize) -> Option<Arc<dyn Watch>> {
        self.core.ring_at_ends(from, every);
        self.watch()
    }

    /// Peers on other hosts cannot sleep on a region; only a thread that watches it here is woken.
    fn notify(&self) {
        if self.core.has_watch() {
            fence(Ordering::SeqCst);
            self.core.ring_fenced();
        }
    }
}

/// What a thread sleeps on until a peer has written to a region.
struct RoceWatch {
    bell: Arc<Doorbell<AtomicU32>>,
    pd: RocePd,
}

impl Watch for RoceWatch {
    fn arm(&self) {
        self.bell.arm();
        self.pd.device().hand_over();
    }

    fn disarm(&self) {
        self.bell.disarm();
    }

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        self.bell.wait(timeout)
    }

    fn wake(&self) {
        self.bell.wake();
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_fd()
    }
}
