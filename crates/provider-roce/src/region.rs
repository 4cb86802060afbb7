//! What the engine and the queue pairs know of a registered region: its key, its rights, and how to
//! wake a thread that sleeps until a peer has written to it.
use catchment_verbs::Access;
use catchment_verbs::mem::Region;
use catchment_verbs::provider::RegionWatch;
use catchment_verbs::wait::Doorbell;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// What may still be done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum KeyState {
    /// Nothing: the region was deregistered.
    Deregistered,
    /// Local access only: a peer invalidated the key.
    Invalidated,
    /// Everything that the region's rights allow.
    Valid,
}

/// What the engine and the queue pairs need of a region.
pub(crate) struct MrCore {
    pub(crate) key: u32,
    pub(crate) pd: u64,
    pub(crate) access: Access,
    pub(crate) region: Arc<Region>,
    /// A [`KeyState`].
    state: AtomicU8,
    watch: RegionWatch,
    /// Where pieces begin, and their bytes, if only writes to the ends of pieces ring.
    ends: OnceLock<(usize, usize)>,
}

impl MrCore {
    pub(crate) fn new(key: u32, pd: u64, access: Access, region: Arc<Region>) -> Self {
        Self {
            key,
            pd,
            access,
            region,
            state: AtomicU8::new(KeyState::Valid as u8),
            watch: RegionWatch::default(),
            ends: OnceLock::new(),
        }
    }

    /// Returns false once it was deregistered, although a request may still hold it.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.state.load(Ordering::Acquire) != KeyState::Deregistered as u8
    }

    /// Returns false once it was deregistered, or a peer has invalidated its key.
    #[inline]
    pub(crate) fn is_reachable(&self) -> bool {
        self.state.load(Ordering::Acquire) == KeyState::Valid as u8
    }

    /// Invalidates the key on behalf of a peer, if the peer may; returns whether it did.
    pub(crate) fn invalidate(&self, pd: u64) -> bool {
        let may = self.pd == pd && self.access.contains(Access::REMOTE_INVALIDATE);
        let (from, to) = (KeyState::Valid as u8, KeyState::Invalidated as u8);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let changed = || self.state.compare_exchange(from, to, order.0, order.1);
        may && changed().is_ok()
    }

    /// Returns the offset of `addr`, if all of the range is inside and these rights are there.
    #[inline]
    pub(crate) fn range(&self, pd: u64, rights: Access, addr: u64, bytes: u64) -> Option<usize> {
        if self.pd != pd || !self.access.contains(rights) {
            return None;
        }
        let offset = addr.checked_sub(self.region.addr())?;
        let end = offset.checked_add(bytes)?;
        (end <= self.region.bytes() as u64).then_some(offset as usize)
    }

    /// Marks the region as deregistered.
    pub(crate) fn deregister(&self) {
        self.state.store(KeyState::Deregistered as u8, Ordering::Release);
    }

    /// Returns the watch of the region, made at the first call.
    pub(crate) fn watch(&self) -> io::Result<&Arc<Doorbell<AtomicU32>>> {
        self.watch.get_or_create(AtomicU32::default)
    }

    /// Lets only writes before `from`, and to the ends of pieces of `every` bytes from there on, ring.
    pub(crate) fn ring_at_ends(&self, from: usize, every: usize) {
        self.ends.get_or_init(|| (from, every.max(1)));
    }

    /// Returns whether a thread has ever asked to sleep on it.
    #[inline]
    pub(crate) fn has_watch(&self) -> bool {
        self.watch.exists()
    }

    /// Returns whether a write of so many bytes there rings.
    #[inline]
    pub(crate) fn rings(&self, offset: usize, bytes: usize) -> bool {
        self.has_watch()
            && self.ends.get().is_none_or(|(from, every)| {
                offset < *from || (offset - from) / every < (offset + bytes - from) / every
            })
    }

    /// Wakes the sleeper that has armed. The caller has made a fence after the data.
    #[inline]
    pub(crate) fn ring_fenced(&self) {
        self.watch.ring_fenced();
    }
}
