//! What the service thread and the queue pairs know of a registered region, and its sleepers.
use crate::tables::{OwnerFlag, SharedWord, owner_bell_offset, peers_bell_offset};
use catchment_verbs::mem::{MemError, Region, VolatileSlice};
use catchment_verbs::provider::RegionWatch;
use catchment_verbs::wait::Doorbell;
use catchment_verbs::wait::arm::{self, Flags as _};
use catchment_verbs::wait::futex::{self, Scope};
use catchment_verbs::{Access, Sge};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the service thread and the queue pairs need of a region.
pub(crate) struct MrCore {
    pub(crate) key: u32,
    pub(crate) pd: u64,
    pub(crate) access: Access,
    pub(crate) region: Arc<Region>,
    valid: AtomicBool,
    owner_flag: OwnerFlag,
    peer_flags: SharedWord,
    watch: RegionWatch<OwnerFlag>,
}

impl MrCore {
    /// Creates a region under `key`.
    pub(crate) fn new(
        key: u32,
        pd: u64,
        access: Access,
        region: Arc<Region>,
        bells: &Arc<Region>,
        fences_for_writers: bool,
    ) -> Result<Self, MemError> {
        let owner_flag =
            OwnerFlag { word: SharedWord::new(bells, owner_bell_offset(key))?, fences_for_writers };
        Ok(Self {
            key,
            pd,
            access,
            region,
            valid: AtomicBool::new(true),
            owner_flag,
            peer_flags: SharedWord::new(bells, peers_bell_offset(key))?,
            watch: RegionWatch::default(),
        })
    }

    /// Returns false once it was deregistered, although a request may still hold it.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.valid.load(Ordering::Acquire)
    }

    /// Returns the bytes at `addr`, if all of them are inside.
    #[inline]
    pub(crate) fn at(&self, addr: u64, bytes: usize) -> Option<VolatileSlice<'_>> {
        let offset = addr.checked_sub(self.region.addr())?;
        self.region.slice(usize::try_from(offset).ok()?, bytes).ok()
    }

    /// Returns whether a request of this protection domain may use the element so, and has bytes.
    #[inline]
    pub(crate) fn allows(&self, pd: u64, sge: &Sge, rights: Access) -> bool {
        let inside = self.at(sge.addr, sge.bytes as usize).is_some();
        let has_rights = self.pd == pd && self.access.contains(rights);
        sge.bytes > 0 && inside && has_rights && !self.region.is_broken()
    }

    /// Returns the descriptor that allows a peer only what the rights allow.
    pub(crate) fn export(&self) -> Result<OwnedFd, MemError> {
        let may_write = self.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !may_write {
            return self.region.read_only_fd();
        }
        let bytes = self.region.bytes();
        let os = |source| MemError::Os { call: "dup", bytes, source };
        self.region.fd()?.try_clone_to_owned().map_err(os)
    }

    /// Wakes all threads that sleep on a region that is no longer registered.
    pub(crate) fn wake_all(&self) {
        self.peer_flags.take();
        futex::wake(self.peer_flags.get(), Scope::Shared, u32::MAX);
        self.wake_owner();
    }

    /// Marks the key as no longer valid.
    pub(crate) fn revoke(&self) {
        self.valid.store(false, Ordering::Release);
    }

    /// Wakes the peers that sleep until the owner changes the region.
    pub(crate) fn notify(&self) {
        if arm::take_armed(&self.peer_flags) != 0 {
            futex::wake(self.peer_flags.get(), Scope::Shared, u32::MAX);
        }
    }

    /// Returns the owner's watch, created when the owner needs it or a peer maps the region.
    pub(crate) fn watch(&self) -> io::Result<&Arc<Doorbell<OwnerFlag>>> {
        self.watch.get_or_create(|| self.owner_flag.clone())
    }

    /// Wakes the thread of this process that sleeps on the region.
    pub(crate) fn wake_owner(&self) {
        self.watch.wake();
    }
}
