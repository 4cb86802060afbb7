//! Registered regions, and sleeping until a peer has written to one.
use crate::context::RocePd;
use catchment_verbs::{Access, Mr, Wake, Watch, event, mem::Region};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU32, Ordering, fence},
    },
    time::Duration,
};

/// Deregistered.
const FOR_NOBODY: u8 = 0;
/// A peer invalidated the key.
const FOR_US: u8 = 1;
/// Registered.
const FOR_ALL: u8 = 2;

/// What the engine and the queue pairs need of a region.
pub(crate) struct MrCore {
    key: u32,
    pd: u64,
    access: Access,
    region: Arc<Region>,
    /// Who may use the key: one of the constants below.
    valid: AtomicU8,
    watch: OnceLock<Arc<MrWatch>>,
}

impl MrCore {
    /// A region under `key`.
    pub(crate) fn new(key: u32, pd: u64, access: Access, region: Arc<Region>) -> MrCore {
        MrCore {
            key,
            pd,
            access,
            region,
            valid: AtomicU8::new(FOR_ALL),
            watch: OnceLock::new(),
        }
    }

    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    pub(crate) fn pd(&self) -> u64 {
        self.pd
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// False once it was deregistered, although a request may still hold it.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.valid.load(Ordering::Acquire) != FOR_NOBODY
    }

    /// False once it was deregistered, or a peer has invalidated its key.
    #[inline]
    pub(crate) fn is_reachable(&self) -> bool {
        self.valid.load(Ordering::Acquire) == FOR_ALL
    }

    /// A peer takes the key away, if it may; whether it did.
    pub(crate) fn invalidate(&self, pd: u64) -> bool {
        let may = self.pd == pd && self.access.contains(Access::REMOTE_INVALIDATE);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        may && self
            .valid
            .compare_exchange(FOR_ALL, FOR_US, order.0, order.1)
            .is_ok()
    }

    /// The offset of `addr`, if all of the range is inside and these rights are there.
    #[inline]
    pub(crate) fn range(&self, pd: u64, rights: Access, addr: u64, bytes: u64) -> Option<usize> {
        if self.pd != pd || !self.access.contains(rights) {
            return None;
        }
        let offset = addr.checked_sub(self.region.addr())?;
        let end = offset.checked_add(bytes)?;
        (end <= self.region.bytes() as u64).then_some(offset as usize)
    }

    /// Whether somebody has ever asked to sleep on it.
    #[inline]
    pub(crate) fn has_watch(&self) -> bool {
        self.watch.get().is_some()
    }

    /// Wakes who has armed. The caller has made a fence after the data.
    #[inline]
    pub(crate) fn ring_fenced(&self) {
        if let Some(watch) = self.watch.get()
            && watch.armed.load(Ordering::Relaxed) != 0
            && watch.armed.swap(0, Ordering::AcqRel) != 0
        {
            event::ring(&watch.event);
        }
    }
}

/// A registered region, as the application holds it.
pub(crate) struct RoceMr {
    core: Arc<MrCore>,
    pd: Arc<RocePd>,
}

impl RoceMr {
    pub(crate) fn new(core: Arc<MrCore>, pd: Arc<RocePd>) -> RoceMr {
        RoceMr { core, pd }
    }
}

impl Drop for RoceMr {
    /// Waits for the engine's present turn: afterwards no peer reaches the memory.
    fn drop(&mut self) {
        self.core.valid.store(FOR_NOBODY, Ordering::Release);
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
        if self.core.watch.get().is_none() {
            let event = event::event_fd()
                .inspect_err(|error| tracing::warn!(%error, "no event counter for a watch"))
                .ok()?;
            let armed = AtomicU32::new(0);
            // Whoever comes second drops its own.
            let _ = self.core.watch.set(Arc::new(MrWatch { armed, event }));
        }
        let watch = self.core.watch.get()?;
        Some(Arc::clone(watch) as Arc<dyn Watch>)
    }

    /// Peers on other hosts cannot sleep on a region; only who watches it here is woken.
    fn notify(&self) {
        if self.core.has_watch() {
            fence(Ordering::SeqCst);
            self.core.ring_fenced();
        }
    }
}

/// Sleeps until a peer has written to a region. All threads that watch one region share it.
struct MrWatch {
    armed: AtomicU32,
    event: OwnedFd,
}

impl Watch for MrWatch {
    fn arm(&self) {
        self.armed.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.armed.store(0, Ordering::Relaxed);
    }

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        event::wait(self.event.as_fd(), timeout)
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        event::ring(&self.event);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
