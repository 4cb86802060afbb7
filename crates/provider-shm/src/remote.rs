//! A peer's registered regions that are mapped here.
use crate::connection::Connection;
use crate::link::{CallError, PeerLink};
use crate::proto::{Reply, Request};
use crate::socket;
use crate::tables::{SharedWord, owner_bell_offset, peers_bell_offset, valid_offset};
use catchment_verbs::mem::{Region, VolatileSlice};
use catchment_verbs::wait::arm::{self, Flags as _};
use catchment_verbs::wait::barrier;
use catchment_verbs::wait::futex::{self, Scope};
use catchment_verbs::{Access, RemoteBell, Wake, Watch, WcStatus, event};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A region of the peer, mapped here with the rights that it granted.
pub(crate) struct RemoteMr {
    key: u32,
    addr: u64,
    access: Access,
    region: Arc<Region>,
    link: Arc<PeerLink>,
    owner_flag: SharedWord,
    /// See [`PeerLink::fences_for_us`].
    fences_for_us: bool,
    bell: OwnedFd,
    watch: OnceLock<Arc<RemoteWatch>>,
}

impl RemoteMr {
    /// Requests the region of `rkey` from the peer and maps it.
    pub(crate) fn resolve(connection: &Connection, rkey: u32) -> Result<Arc<Self>, WcStatus> {
        Self::ask(connection, rkey).map_err(|error| {
            tracing::debug!(qpn = connection.facts.qpn, rkey, %error, "rkey not resolved");
            status_of(&error)
        })
    }

    fn ask(connection: &Connection, rkey: u32) -> Result<Arc<Self>, CallError> {
        let link = connection.link()?;
        let target = connection.facts.qpn;
        let (reply, descriptors) = link.call(&Request::Resolve { target, rkey }, &[])?;
        let Reply::Region { addr, bytes, access } = reply else { return Err(CallError::Protocol) };
        let [fd, bell]: [OwnedFd; 2] = descriptors.try_into().map_err(|_| CallError::Protocol)?;
        let access = Access::from_bits_truncate(access);
        let bytes = usize::try_from(bytes).map_err(|_| CallError::Protocol)?;
        let writable = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        Ok(Arc::new(Self {
            key: rkey,
            addr,
            access,
            region: Region::from_peer(fd, bytes, writable)?,
            link: Arc::clone(link),
            owner_flag: SharedWord::new(&link.bells, owner_bell_offset(rkey))?,
            fences_for_us: link.fences_for_us,
            bell: socket::never_waiting(bell)?,
            watch: OnceLock::new(),
        }))
    }

    #[inline]
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns false once the owner has deregistered it.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        let word = self.link.valid.whole().load_u64(valid_offset(self.key), Ordering::Acquire);
        matches!(word, Ok(key) if key == u64::from(self.key))
    }

    /// Returns where `addr` is in the region, if `bytes` from there are inside and the rights allow
    /// it.
    #[inline]
    pub(crate) fn offset(&self, addr: u64, bytes: u64, rights: Access) -> Result<usize, WcStatus> {
        let offset = addr.checked_sub(self.addr).ok_or(WcStatus::RemoteAccess)?;
        let end = offset.checked_add(bytes).ok_or(WcStatus::RemoteAccess)?;
        let inside = end <= self.region.bytes() as u64;
        if inside && self.access.contains(rights) && self.is_valid() {
            Ok(offset as usize)
        } else {
            Err(WcStatus::RemoteAccess)
        }
    }

    /// Returns all of its memory.
    #[inline]
    pub(crate) fn memory(&self) -> VolatileSlice<'_> {
        self.region.whole()
    }

    /// Rings if the owner sleeps. The caller's stores are before its fence.
    #[inline]
    pub(crate) fn ring_fenced(&self) {
        if arm::take_armed_fenced(self.owner_flag.get()) != 0 {
            event::ring(&self.bell);
        }
    }

    /// Returns the watch of this region, created at first use.
    pub(crate) fn watch(&self) -> Result<Arc<RemoteWatch>, WcStatus> {
        if let Some(watch) = self.watch.get() {
            return Ok(Arc::clone(watch));
        }
        let flags = SharedWord::new(&self.link.bells, peers_bell_offset(self.key));
        let watch = Arc::new(RemoteWatch {
            flags: flags.map_err(|_| WcStatus::General)?,
            is_armed: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            key: self.key,
            link: Arc::clone(&self.link),
        });
        let woken: Arc<dyn Watch> = Arc::clone(&watch) as _;
        self.link.add_watch(Arc::downgrade(&woken));
        Ok(Arc::clone(self.watch.get_or_init(|| watch)))
    }
}

/// Returns what a failed query of the peer means for the request that needed it.
pub(crate) fn status_of(error: &CallError) -> WcStatus {
    match error {
        CallError::Refused(_) => WcStatus::RemoteAccess,
        CallError::Memory(_)
        | CallError::Protocol
        | CallError::Version(_)
        | CallError::NoDescriptor
        | CallError::Stale => WcStatus::RemoteOperation,
        CallError::Io(_) | CallError::TimedOut | CallError::Gone => {
            WcStatus::TransportRetryExceeded
        }
    }
}

/// The bell of a mapped region, for a caller that fills it in place.
pub(crate) struct ShmBell(pub(crate) Arc<RemoteMr>);

impl RemoteBell for ShmBell {
    #[inline]
    fn ring(&self) {
        if self.0.fences_for_us {
            barrier::light();
        } else {
            fence(Ordering::SeqCst);
        }
        self.0.ring_fenced();
    }

    fn is_valid(&self) -> bool {
        !self.0.link.is_dead() && self.0.is_valid() && !self.0.region.is_broken()
    }
}

/// Set while a thread sleeps on the word of a region, or is about to.
const ARMED: u32 = 1;

/// Sleeps until the owner of a remote region notifies, deregisters it, or dies.
///
/// The sleepers of all peers share one word in the memory of the owner, and sleep on it (futex): no
/// descriptor is sent to the owner. So one peer must not disarm what another has armed: a word that
/// stays armed costs the owner one system call at its next change.
pub(crate) struct RemoteWatch {
    flags: SharedWord,
    /// Armed here, and not woken since.
    is_armed: AtomicBool,
    /// [`Watch::wake`] was called.
    woken: AtomicBool,
    key: u32,
    link: Arc<PeerLink>,
}

impl RemoteWatch {
    fn is_gone(&self) -> bool {
        let word = self.link.valid.whole().load_u64(valid_offset(self.key), Ordering::Acquire);
        self.link.is_dead() || !matches!(word, Ok(key) if key == u64::from(self.key))
    }
}

impl Watch for RemoteWatch {
    fn arm(&self) {
        self.is_armed.store(true, Ordering::Release);
        arm::arm(&self.flags, ARMED);
        if self.is_gone() {
            // No more rings will come.
            self.wake();
        }
    }

    fn disarm(&self) {
        self.is_armed.store(false, Ordering::Release);
    }

    fn wait(&self, timeout: Duration) -> io::Result<Wake> {
        let deadline = event::deadline(timeout);
        let is_armed = self.is_armed.swap(false, Ordering::AcqRel);
        loop {
            if !is_armed {
                // Only to sleep until `wake` changes the word: the owner's changes are ignored.
                arm::arm(&self.flags, ARMED);
            }
            let seen = self.flags.peek();
            if self.woken.swap(false, Ordering::AcqRel) || is_armed && seen & ARMED == 0 {
                return Ok(Wake::Rung);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.is_armed.fetch_or(is_armed, Ordering::AcqRel);
                return Ok(Wake::TimedOut);
            }
            futex::sleep(self.flags.get(), Scope::Shared, seen, Some(left))?;
        }
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.flags.take();
        futex::wake(self.flags.get(), Scope::Shared, u32::MAX);
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Regions known at once to one queue pair; more work too, but are queried repeatedly.
const CACHED: usize = 64;

/// The regions of the peer that a queue pair used recently.
#[derive(Default)]
pub(crate) struct RemoteCache {
    entries: Vec<Arc<RemoteMr>>,
    last: usize,
    victim: usize,
    /// Written since the last [`RemoteCache::ring_fenced`]: one bit for each entry.
    touched: u64,
    /// One of them needs our fence before that.
    needs_fence: bool,
}

impl RemoteCache {
    /// Returns the place of `rkey`, if it is known.
    #[inline]
    pub(crate) fn find(&mut self, rkey: u32) -> Option<usize> {
        if let Some(mr) = self.entries.get(self.last)
            && mr.key() == rkey
        {
            return Some(self.last);
        }
        let at = self.entries.iter().position(|mr| mr.key() == rkey)?;
        self.last = at;
        Some(at)
    }

    /// Returns the region at a place from [`RemoteCache::find`] or [`RemoteCache::insert`].
    #[inline]
    pub(crate) fn get(&self, at: usize) -> &Arc<RemoteMr> {
        &self.entries[at]
    }

    /// Returns whether a page of one of them could not be had.
    pub(crate) fn is_broken(&self) -> bool {
        self.entries.iter().any(|mr| mr.region.is_broken())
    }

    /// Marks the region at this place as written.
    #[inline]
    pub(crate) fn touch(&mut self, at: usize) {
        self.touched |= 1 << at;
        self.needs_fence |= !self.entries[at].fences_for_us;
    }

    /// Returns whether something was written without a ring since.
    #[inline]
    pub(crate) fn is_touched(&self) -> bool {
        self.touched != 0
    }

    /// Rings the sleeping owners of written regions; makes the fence before it where they need ours.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if self.needs_fence {
            fence(Ordering::SeqCst);
        } else {
            barrier::light();
        }
        self.ring_fenced();
    }

    /// Rings the sleeping owners of written regions. The caller has made a fence since.
    #[inline]
    pub(crate) fn ring_fenced(&mut self) {
        self.needs_fence = false;
        let mut touched = std::mem::take(&mut self.touched);
        while touched != 0 {
            self.entries[touched.trailing_zeros() as usize].ring_fenced();
            touched &= touched - 1;
        }
    }

    /// Returns the regions that were written since the last ring.
    pub(crate) fn take_touched(&mut self) -> Vec<Arc<RemoteMr>> {
        self.needs_fence = false;
        let touched = std::mem::take(&mut self.touched);
        let entries = self.entries.iter().enumerate();
        entries.filter(|(at, _)| touched >> at & 1 != 0).map(|(_, mr)| Arc::clone(mr)).collect()
    }

    /// Remembers a region; forgets those that are deregistered.
    pub(crate) fn insert(&mut self, mr: Arc<RemoteMr>) -> usize {
        if self.is_touched() {
            self.ring();
        }
        self.entries.retain(|known| known.is_valid() && known.key() != mr.key());
        if self.entries.len() < CACHED {
            self.entries.push(mr);
            self.last = self.entries.len() - 1;
        } else {
            self.victim = (self.victim + 1) % CACHED;
            self.entries[self.victim] = mr;
            self.last = self.victim;
        }
        self.last
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
