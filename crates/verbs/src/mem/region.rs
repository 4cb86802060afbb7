//! A sealed memfd and its mapping.
use super::error::os_error;
use super::fault::Watched;
use super::{MemError, VolatileSlice};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// TMPFS_MAGIC of statfs(2): memfds without huge pages.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// How to allocate a [`Region`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionOptions {
    /// Touch every page now, so that no page fault delays a frame.
    pub populate: bool,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self { populate: true }
    }
}

/// Memory that can be registered: a memfd that cannot shrink, mapped into this process.
///
/// Unmapped when the last `Arc` goes, those of its parts included. The memory itself lives until the last process that maps it
/// is gone, and then vanishes: it has no name.
#[derive(Debug)]
pub struct Region {
    ptr: NonNull<u8>,
    bytes: usize,
    writable: bool,
    /// Kept for memory that may be shared with more peers.
    fd: Option<OwnedFd>,
    /// The same memory for peers that may only read, opened once.
    read_only: OnceLock<OwnedFd>,
    watched: Watched,
    /// Of a part: what it is a part of.
    whole: Option<Whole>,
}

/// What a part of a region keeps.
#[derive(Debug)]
struct Whole {
    region: Arc<Region>,
    /// Dropped with the part.
    _kept: Box<dyn Any + Send + Sync>,
}

// SAFETY: the mapping belongs to no thread, and all access goes through `VolatileSlice`, which
// makes no references to plain bytes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates `bytes` of zeroed memory, sealed against shrinking and growing.
    ///
    /// # Errors
    /// [`MemError::Empty`] for 0 bytes, [`MemError::Os`] when the system refuses.
    pub fn alloc(bytes: usize, options: RegionOptions) -> Result<Arc<Self>, MemError> {
        let (mut region, fd) = Self::create(bytes, options)?;
        region.fd = Some(fd);
        Ok(Arc::new(region))
    }

    /// Allocates memory like [`Region::alloc`], and returns its descriptor too. For memory that
    /// is shared with one peer: drop the descriptor once the peer has mapped it.
    ///
    /// # Errors
    /// As [`Region::alloc`].
    pub fn alloc_with_fd(
        bytes: usize,
        options: RegionOptions,
    ) -> Result<(Arc<Self>, OwnedFd), MemError> {
        let (mut region, fd) = Self::create(bytes, options)?;
        region.fd = Some(fd);
        region.fd()?;
        let fd = region.fd.take().ok_or(MemError::NoDescriptor)?;
        Ok((Arc::new(region), fd))
    }

    fn create(bytes: usize, options: RegionOptions) -> Result<(Self, OwnedFd), MemError> {
        if bytes == 0 {
            return Err(MemError::Empty);
        }
        let os = |call| move |e| os_error(call, bytes, e);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("catchment", flags).map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(os("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(os("fcntl(F_ADD_SEALS)"))?;
        Ok((Self::map(&fd, bytes, true, options)?, fd))
    }

    /// Maps memory that a peer sent as a descriptor, and closes the descriptor.
    ///
    /// # Errors
    /// [`MemError::NotSealed`] if the peer could still shrink it (an access would then kill this
    /// process), [`MemError::Truncated`] if it is shorter than announced.
    pub fn from_peer(
        fd: OwnedFd,
        announced_bytes: usize,
        writable: bool,
    ) -> Result<Arc<Self>, MemError> {
        Ok(Arc::new(Self::map_foreign(&fd, announced_bytes, writable)?))
    }

    /// Maps memory that another process lent ([`Region::lend`]), and keeps the descriptor, so that this
    /// process can share the memory with others on behalf of the one that lent it.
    ///
    /// # Errors
    /// As [`Region::from_peer`].
    pub fn from_lender(
        fd: OwnedFd,
        announced_bytes: usize,
        writable: bool,
    ) -> Result<Arc<Self>, MemError> {
        let mut region = Self::map_foreign(&fd, announced_bytes, writable)?;
        region.fd = Some(fd);
        Ok(Arc::new(region))
    }

    fn map_foreign(fd: &OwnedFd, announced_bytes: usize, writable: bool) -> Result<Self, MemError> {
        if announced_bytes == 0 {
            return Err(MemError::Empty);
        }
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| MemError::NotSealed(0))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemError::NotSealed(seals.bits()));
        }
        let plain = rustix::fs::fstatfs(fd).map_err(|e| os_error("fstatfs", announced_bytes, e))?;
        if plain.f_type != TMPFS {
            return Err(MemError::NotPlain(plain.f_type as u64));
        }
        let stat = rustix::fs::fstat(fd).map_err(|e| os_error("fstat", announced_bytes, e))?;
        let seen = stat.st_size as u64;
        if seen < announced_bytes as u64 {
            return Err(MemError::Truncated { announced: announced_bytes, seen });
        }
        // A peer's sparse terabyte must not become real memory here: map only what exists.
        let populate = stat.st_blocks as u64 * 512 >= announced_bytes as u64;
        Self::map(fd, announced_bytes, writable, RegionOptions { populate })
    }

    fn map(
        fd: &OwnedFd,
        bytes: usize,
        writable: bool,
        options: RegionOptions,
    ) -> Result<Self, MemError> {
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, writable);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let ptr =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, fd, 0) }
                .map_err(|e| os_error("mmap", bytes, e))?;
        let ptr = NonNull::new(ptr.cast::<u8>()).ok_or(MemError::Empty)?;
        let watched = Watched::begin(ptr.as_ptr() as usize, bytes, writable).inspect_err(|_| {
            // SAFETY: the mapping that was just made, which nothing else knows.
            let _ = unsafe { rustix::mm::munmap(ptr.as_ptr().cast(), bytes) };
        })?;
        let (fd, read_only) = (None, OnceLock::new());
        let region = Self { ptr, bytes, writable, fd, read_only, watched, whole: None };
        region.advise(options)?;
        Ok(region)
    }

    fn advise(&self, options: RegionOptions) -> Result<(), MemError> {
        let start = self.ptr.as_ptr().cast();
        // Fewer TLB misses where the system allows it; nothing is lost where it does not.
        // SAFETY: the range is our own mapping; the advice changes no contents.
        let _ = unsafe { rustix::mm::madvise(start, self.bytes, Advice::LinuxHugepage) };
        if options.populate { self.populate() } else { Ok(()) }
    }

    /// Touches every page that holds some of it, so that no page fault comes later.
    ///
    /// # Errors
    /// [`MemError::Os`] when the system has no pages.
    pub fn populate(&self) -> Result<(), MemError> {
        let advice =
            if self.writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        let before = self.ptr.as_ptr() as usize % rustix::param::page_size();
        // SAFETY: the range is of our own mapping, which is whole pages; the advice changes no contents.
        let done = unsafe {
            rustix::mm::madvise(self.ptr.as_ptr().sub(before).cast(), self.bytes + before, advice)
        };
        match done {
            // A kernel before 5.14 does not know the advice: pages come at first touch.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(e) => Err(os_error("madvise(POPULATE)", self.bytes, e)),
        }
    }

    /// Returns a part of the memory as a region of its own: the same mapping, which it keeps, and no descriptor. `kept`
    /// is dropped with it.
    ///
    /// # Errors
    /// [`MemError::Empty`] for 0 bytes, [`MemError::OutOfBounds`].
    pub fn part(
        self: &Arc<Self>,
        offset: usize,
        bytes: usize,
        kept: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Self>, MemError> {
        if bytes == 0 {
            return Err(MemError::Empty);
        }
        self.slice(offset, bytes)?;
        Ok(Arc::new(Self {
            // SAFETY: `slice` checked that the range lies in the mapping.
            ptr: unsafe { self.ptr.add(offset) },
            bytes,
            writable: self.writable,
            fd: None,
            read_only: OnceLock::new(),
            watched: self.watched.again(),
            whole: Some(Whole { region: Arc::clone(self), _kept: kept }),
        }))
    }

    /// Returns whether it is this region, or a part of it.
    pub fn is_within(self: &Arc<Self>, whole: &Arc<Self>) -> bool {
        let own = self.whole.as_ref().map_or(self, |of| &of.region);
        Arc::ptr_eq(self, whole) || Arc::ptr_eq(own, whole)
    }

    /// Returns the address of the first byte in this process.
    pub fn addr(&self) -> u64 {
        self.ptr.as_ptr() as u64
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether a page of it could not be had (SIGBUS): what was read since may be anything, and
    /// what was written may reach nobody. Says so after the access that failed, so check it then.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.watched.is_broken()
    }

    /// Returns whether this process may write.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns another descriptor of the memory, for a process that registers it on behalf of this one and
    /// decides there with whom it is shared and how. Adds no seal: that process must be trusted as this one.
    ///
    /// # Errors
    /// [`MemError::NoDescriptor`] as [`Region::fd`], [`MemError::Os`] when no descriptor is left.
    pub fn lend(&self) -> Result<OwnedFd, MemError> {
        let fd = self.fd.as_ref().ok_or(MemError::NoDescriptor)?;
        let os = |e| os_error("fcntl(F_DUPFD_CLOEXEC)", self.bytes, e);
        rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(os)
    }

    /// Returns the memfd, for peers that may write. From now on the memory has no other seals than those
    /// against shrinking and growing.
    ///
    /// # Errors
    /// [`MemError::NoDescriptor`] for memory of a peer, or of [`Region::alloc_with_fd`];
    /// [`MemError::SharedOtherwise`] after [`Region::read_only_fd`].
    pub fn fd(&self) -> Result<BorrowedFd<'_>, MemError> {
        self.seal(SealFlags::empty())
    }

    /// Returns a descriptor of the same memory for a peer that may only read. From now on nobody can map
    /// the memory for writing, whatever descriptor of it is opened again; this mapping stays writable.
    ///
    /// # Errors
    /// [`MemError::NoDescriptor`] as [`Region::fd`], [`MemError::SharedOtherwise`] after it,
    /// [`MemError::Os`] when /proc is not there.
    pub fn read_only_fd(&self) -> Result<OwnedFd, MemError> {
        let os = |call| move |e| os_error(call, self.bytes, e);
        let fd = self.seal(SealFlags::FUTURE_WRITE)?;
        if self.read_only.get().is_none() {
            // Only once: a peer may change the mode of its descriptor, and so of the memory.
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(os("open(/proc/self/fd, O_RDONLY)"))?;
            let _ = self.read_only.set(opened);
        }
        let opened = self.read_only.get().ok_or(MemError::NoDescriptor)?;
        rustix::io::fcntl_dupfd_cloexec(opened, 0).map_err(os("fcntl(F_DUPFD_CLOEXEC)"))
    }

    /// Adds these seals and the one that no more can be added, unless that was done before.
    fn seal(&self, seals: SealFlags) -> Result<BorrowedFd<'_>, MemError> {
        let fd = self.fd.as_ref().ok_or(MemError::NoDescriptor)?;
        let os = |call| move |e| os_error(call, self.bytes, e);
        match rustix::fs::fcntl_add_seals(fd, seals | SealFlags::SEAL) {
            // Sealed before.
            Ok(()) | Err(rustix::io::Errno::PERM) => {}
            Err(e) => return Err(os("fcntl(F_ADD_SEALS)")(e)),
        }
        let there = rustix::fs::fcntl_get_seals(fd).map_err(os("fcntl(F_GET_SEALS)"))?;
        let name = |seals: SealFlags| {
            if seals.contains(SealFlags::FUTURE_WRITE) { "for reading" } else { "for writing" }
        };
        match (name(there), name(seals)) {
            (shared, asked) if shared == asked => Ok(fd.as_fd()),
            (shared, asked) => Err(MemError::SharedOtherwise { shared, asked }),
        }
    }

    /// Returns the whole memory.
    #[inline]
    pub fn whole(&self) -> VolatileSlice<'_> {
        // SAFETY: the mapping is `bytes` long and lives as long as `self`, which the slice borrows.
        unsafe { VolatileSlice::from_raw(self.ptr, self.bytes, self.writable) }
    }

    /// Returns a part of the memory.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    #[inline]
    pub fn slice(&self, offset: usize, bytes: usize) -> Result<VolatileSlice<'_>, MemError> {
        self.whole().subslice(offset, bytes)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.whole.is_some() {
            return;
        }
        self.watched.end();
        // SAFETY: our own mapping; every slice of it borrowed `self` and is gone.
        let _ = unsafe { rustix::mm::munmap(self.ptr.as_ptr().cast(), self.bytes) };
    }
}

/// A part of a region that keeps the region mapped.
#[derive(Debug, Clone)]
pub struct RegionSlice {
    region: Arc<Region>,
    offset: usize,
    bytes: usize,
}

impl RegionSlice {
    /// Returns `bytes` of the region from `offset` on.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn new(region: Arc<Region>, offset: usize, bytes: usize) -> Result<Self, MemError> {
        region.slice(offset, bytes)?;
        Ok(Self { region, offset, bytes })
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the region that it is a part of.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the memory.
    #[inline]
    pub fn memory(&self) -> VolatileSlice<'_> {
        // SAFETY: `new` checked that the range lies in the region, which `self` keeps mapped.
        unsafe {
            VolatileSlice::from_raw(
                self.region.ptr.add(self.offset),
                self.bytes,
                self.region.writable,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(bytes: usize) -> Arc<Region> {
        Region::alloc(bytes, RegionOptions::default()).unwrap()
    }

    #[test]
    fn a_peer_sees_the_same_bytes_and_cannot_shrink_them() {
        let ours = region(10_000);
        let fd = ours.fd().unwrap().try_clone_to_owned().unwrap();
        let theirs = Region::from_peer(fd, 10_000, true).unwrap();
        theirs.whole().write_at(9_990, b"catchment!").unwrap();
        let mut seen = [0; 10];
        ours.whole().read_at(9_990, &mut seen).unwrap();
        assert_eq!(&seen, b"catchment!");
        assert!(rustix::fs::ftruncate(ours.fd().unwrap(), 1).is_err());
        assert!(matches!(theirs.fd(), Err(MemError::NoDescriptor)));
    }

    /// As a peer would that was given a descriptor: by opening it again, or by changing its mode.
    #[test]
    fn a_read_only_descriptor_cannot_be_made_writable() {
        let ours = region(4096);
        let fd = ours.read_only_fd().unwrap();
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o777)).unwrap();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let again = rustix::fs::open(path, OFlags::RDWR, Mode::empty()).unwrap();
        assert!(rustix::io::write(&again, b"x").is_err());
        assert!(matches!(Region::from_peer(again, 4096, true), Err(MemError::Os { .. })));
        rustix::fs::fchmod(&fd, Mode::empty()).unwrap();
        ours.whole().write_at(0, b"ours").unwrap();
        let next = Region::from_peer(ours.read_only_fd().unwrap(), 4096, false).unwrap();
        let mut seen = [0; 4];
        next.whole().read_at(0, &mut seen).unwrap();
        assert_eq!(&seen, b"ours");
        assert!(matches!(ours.fd(), Err(MemError::SharedOtherwise { .. })));
    }

    /// As an agent does: it maps what an application lent, and gives peers no more than the rights allow.
    #[test]
    fn what_was_lent_is_shared_as_the_borrower_decides() {
        for for_writing in [true, false] {
            let ours = region(4096);
            let borrowed = Region::from_lender(ours.lend().unwrap(), 4096, true).unwrap();
            let fd = if for_writing {
                borrowed.fd().unwrap().try_clone_to_owned().unwrap()
            } else {
                borrowed.read_only_fd().unwrap()
            };
            let writable = Region::from_peer(fd, 4096, true).is_ok();
            assert_eq!(writable, for_writing);
            borrowed.whole().write_at(0, b"lent").unwrap();
            assert_eq!(ours.slice(0, 4).unwrap().to_vec(), b"lent");
        }
    }

    #[test]
    fn a_part_is_bytes_of_the_whole_and_keeps_it_mapped() {
        let (whole, kept) = (region(10_000), Arc::new(()));
        let part = whole.part(4_000, 200, Box::new(Arc::clone(&kept))).unwrap();
        assert_eq!((part.addr(), part.bytes()), (whole.addr() + 4_000, 200));
        part.populate().unwrap();
        part.whole().fill(7).unwrap();
        let around = whole.slice(3_999, 202).unwrap().to_vec();
        assert!(around[0] == 0 && around[201] == 0 && around[1..201] == [7; 200]);
        assert!(part.slice(100, 101).is_err() && part.lend().is_err());
        assert!(part.is_within(&whole) && whole.is_within(&whole) && !whole.is_within(&part));
        for (offset, bytes) in [(9_999, 2), (usize::MAX, 2), (0, 10_001), (0, 0)] {
            assert!(whole.part(offset, bytes, Box::new(())).is_err(), "{offset}, {bytes}");
        }
        drop(whole);
        assert_eq!((part.slice(199, 1).unwrap().to_vec(), Arc::strong_count(&kept)), (vec![7], 2));
        drop(part);
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn memory_of_huge_pages_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // Where the kernel has no huge pages there is nothing to refuse.
        let Ok(fd) = rustix::fs::memfd_create("huge", flags) else { return };
        rustix::fs::ftruncate(&fd, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        let refused = Region::from_peer(fd, 4096, true);
        assert!(matches!(refused, Err(MemError::NotPlain(_))), "{refused:?}");
    }

    #[test]
    fn a_read_only_descriptor_cannot_be_mapped_for_writing() {
        let ours = region(4096);
        let fd = ours.read_only_fd().unwrap();
        let copy = fd.try_clone().unwrap();
        assert!(matches!(
            Region::from_peer(copy, 4096, true),
            Err(MemError::Os { call: "mmap", .. })
        ));
        let theirs = Region::from_peer(fd, 4096, false).unwrap();
        assert!(matches!(theirs.whole().write_at(0, b"x"), Err(MemError::ReadOnly)));
    }

    #[test]
    fn unsealed_short_or_foreign_descriptors_are_refused() {
        let unsealed = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(matches!(Region::from_peer(unsealed, 4096, true), Err(MemError::NotSealed(0))));
        let short = region(4096).fd().unwrap().try_clone_to_owned().unwrap();
        assert!(matches!(
            Region::from_peer(short, 4097, true),
            Err(MemError::Truncated { announced: 4097, seen: 4096 })
        ));
        let (pipe, _write) = rustix::pipe::pipe().unwrap();
        assert!(matches!(Region::from_peer(pipe, 4096, false), Err(MemError::NotSealed(_))));
    }
}
