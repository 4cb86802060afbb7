//! Access to memory that others write.
use super::{CACHE_LINE_BYTES, MemError};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes copied at a time where the reader needs a plain slice: fits a first-level cache.
const CHUNK_BYTES: usize = 4096;

/// A borrowed piece of registered memory that others may change at any time.
///
/// Copies may be torn by concurrent writes. Nothing here reaches memory outside of the slice.
///
/// # What Rust guarantees, and what not
/// The atomics of this type are sound under Rust's memory model, even with concurrent writers. The
/// copies are plain ones: neither volatile nor atomic, because such copies go word by word. Rust's
/// model calls a plain copy that races with another thread's write undefined, and does not cover
/// writes by a device or another process. We rely on what compilers do: a `memcpy` of memory that
/// they cannot see yields some bytes. No reference to them exists, no caller trusts them, and the
/// protocols order by atomics.
#[derive(Debug, Clone, Copy)]
pub struct VolatileSlice<'a> {
    ptr: NonNull<u8>,
    bytes: usize,
    writable: bool,
    _region: PhantomData<&'a AtomicU8>,
}

// SAFETY: all access is by copies that tolerate concurrent change, or by atomics.
unsafe impl Send for VolatileSlice<'_> {}
// SAFETY: as above.
unsafe impl Sync for VolatileSlice<'_> {}

impl<'a> VolatileSlice<'a> {
    /// # Safety
    /// `ptr..ptr+bytes` must be mapped during `'a` (for writing, if `writable`), and no Rust
    /// reference to plain bytes of it may exist.
    pub(super) unsafe fn from_raw(ptr: NonNull<u8>, bytes: usize, writable: bool) -> Self {
        VolatileSlice { ptr, bytes, writable, _region: PhantomData }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of the first byte in this process.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.ptr.as_ptr() as u64
    }

    #[inline]
    fn check(&self, offset: usize, bytes: usize) -> Result<NonNull<u8>, MemError> {
        match offset.checked_add(bytes) {
            // SAFETY: `offset <= self.bytes`, so the result is in the mapping or at its end.
            Some(end) if end <= self.bytes => Ok(unsafe { self.ptr.add(offset) }),
            _ => Err(MemError::OutOfBounds { offset, bytes, available: self.bytes }),
        }
    }

    #[inline]
    fn check_writable(&self, offset: usize, bytes: usize) -> Result<NonNull<u8>, MemError> {
        let ptr = self.check(offset, bytes)?;
        if self.writable { Ok(ptr) } else { Err(MemError::ReadOnly) }
    }

    /// Returns a part of it.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    #[inline]
    pub fn subslice(&self, offset: usize, bytes: usize) -> Result<Self, MemError> {
        Ok(VolatileSlice { ptr: self.check(offset, bytes)?, bytes, ..*self })
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::ReadOnly`]; nothing is written then.
    #[inline]
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), MemError> {
        let to = self.check_writable(offset, data.len())?;
        // SAFETY: the range is checked; a `&[u8]` cannot overlap a region (no such slice exists).
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len()) };
        Ok(())
    }

    /// Stores words of this processor's byte order from `offset` on, one after the other: no copy of them is
    /// put together before, which would wait for them.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::ReadOnly`], [`MemError::Misaligned`]; nothing is stored then.
    #[inline]
    pub fn store_words<const N: usize>(
        &self,
        offset: usize,
        words: &[u64; N],
    ) -> Result<(), MemError> {
        let to = aligned(self.check_writable(offset, 8 * N)?, 8)?;
        for (i, word) in words.iter().enumerate() {
            // SAFETY: the range is checked, and aligned.
            let place = unsafe { AtomicU64::from_ptr(to.as_ptr().add(8 * i).cast()) };
            place.store(*word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies bytes from `offset` into `out`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; `out` is unchanged then.
    #[inline]
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), MemError> {
        let from = self.check(offset, out.len())?;
        // SAFETY: the range is checked; `out` is plain memory, outside of every region.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies all of `from` to `offset`. The two may overlap.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::ReadOnly`]; nothing is written then.
    #[inline]
    pub fn copy_from(&self, offset: usize, from: VolatileSlice<'_>) -> Result<(), MemError> {
        let to = self.check_writable(offset, from.bytes)?;
        // SAFETY: both ranges are checked; `copy` allows overlap.
        unsafe { std::ptr::copy(from.ptr.as_ptr(), to.as_ptr(), from.bytes) };
        Ok(())
    }

    /// Sets all bytes.
    ///
    /// # Errors
    /// [`MemError::ReadOnly`].
    pub fn fill(&self, value: u8) -> Result<(), MemError> {
        let to = self.check_writable(0, self.bytes)?;
        // SAFETY: the range is checked.
        unsafe { std::ptr::write_bytes(to.as_ptr(), value, self.bytes) };
        Ok(())
    }

    /// Returns all bytes in a new vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.bytes];
        // SAFETY: both are `bytes` long and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr(), out.as_mut_ptr(), self.bytes) };
        out
    }

    /// Passes the bytes in order as plain slices, by copying small pieces: for checksums and
    /// parsers, which need a slice that does not change.
    #[inline]
    pub fn for_each_chunk(&self, mut see: impl FnMut(&[u8])) {
        let mut chunk = [0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < self.bytes {
            let n = CHUNK_BYTES.min(self.bytes - offset);
            // SAFETY: `offset + n <= self.bytes` and `n <= CHUNK_BYTES`.
            unsafe {
                std::ptr::copy_nonoverlapping(self.ptr.as_ptr().add(offset), chunk.as_mut_ptr(), n);
            }
            see(&chunk[..n]);
            offset += n;
        }
    }

    /// Writes the bytes to a file at its current position, without a copy in this process, and
    /// returns how many were written.
    ///
    /// # Errors
    /// Those of `write(2)`.
    pub fn write_to_fd(&self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let (ptr, bytes) = (self.ptr.as_ptr().cast(), self.bytes);
        // SAFETY: the range is mapped; the kernel only reads it.
        moved(&[*self], || unsafe { libc::write(fd.as_raw_fd(), ptr, bytes) })
    }

    /// Writes several pieces of memory to a file or socket with one call, in order, at most the
    /// first 16, and returns how many bytes were written.
    ///
    /// # Errors
    /// Those of `writev(2)`.
    pub fn write_all_to_fd(pieces: &[VolatileSlice<'_>], fd: BorrowedFd<'_>) -> io::Result<usize> {
        const MOST: usize = 16;
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST];
        let count = pieces.len().min(MOST);
        for (vector, piece) in vectors.iter_mut().zip(pieces) {
            vector.iov_base = piece.ptr.as_ptr().cast();
            vector.iov_len = piece.bytes;
        }
        let (fd, all, count) = (fd.as_raw_fd(), vectors.as_ptr(), count as libc::c_int);
        // SAFETY: the ranges are mapped; the kernel only reads them. `count` of them are set.
        moved(pieces, || unsafe { libc::writev(fd, all, count) })
    }

    /// Reads from a file or pipe straight into the memory; returns how many bytes, 0 at end of file.
    ///
    /// # Errors
    /// Those of `read(2)`; [`io::ErrorKind::PermissionDenied`] for memory mapped for reading.
    pub fn read_from_fd(&self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        if !self.writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, MemError::ReadOnly));
        }
        let (ptr, bytes) = (self.ptr.as_ptr().cast(), self.bytes);
        // SAFETY: the range is mapped for writing.
        moved(&[*self], || unsafe { libc::read(fd.as_raw_fd(), ptr, bytes) })
    }

    /// Reads a byte of each page, so that a page that cannot be had is replaced (see `fault`).
    fn touch(&self) {
        for offset in (0..self.bytes).step_by(CHUNK_BYTES) {
            // SAFETY: `offset` is inside.
            let _ = unsafe { self.ptr.as_ptr().add(offset).read_volatile() };
        }
    }

    /// Returns the byte at `offset` as an atomic.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::ReadOnly`].
    #[inline]
    pub fn atomic_u8(&self, offset: usize) -> Result<&'a AtomicU8, MemError> {
        let ptr = self.check_writable(offset, 1)?;
        // SAFETY: mapped during 'a, writable; an atomic allows concurrent change.
        Ok(unsafe { AtomicU8::from_ptr(ptr.as_ptr()) })
    }

    /// Returns the four bytes at `offset` as an atomic in host byte order.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Misaligned`], [`MemError::ReadOnly`].
    #[inline]
    pub fn atomic_u32(&self, offset: usize) -> Result<&'a AtomicU32, MemError> {
        let ptr = aligned(self.check_writable(offset, 4)?, 4)?;
        // SAFETY: mapped during 'a, writable, aligned.
        Ok(unsafe { AtomicU32::from_ptr(ptr.as_ptr().cast()) })
    }

    /// Returns the eight bytes at `offset` as an atomic in host byte order.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Misaligned`], [`MemError::ReadOnly`].
    #[inline]
    pub fn atomic_u64(&self, offset: usize) -> Result<&'a AtomicU64, MemError> {
        let ptr = aligned(self.check_writable(offset, 8)?, 8)?;
        // SAFETY: mapped during 'a, writable, aligned.
        Ok(unsafe { AtomicU64::from_ptr(ptr.as_ptr().cast()) })
    }

    /// Loads a byte; works on read-only memory too.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    #[inline]
    pub fn load_u8(&self, offset: usize, order: Ordering) -> Result<u8, MemError> {
        let ptr = self.check(offset, 1)?;
        // SAFETY: mapped; only loaded from, which read-only memory allows at this size.
        Ok(unsafe { AtomicU8::from_ptr(ptr.as_ptr()) }.load(order))
    }

    /// Loads eight bytes in host byte order; works on read-only memory too.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Misaligned`].
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Result<u64, MemError> {
        let ptr = aligned(self.check(offset, 8)?, 8)?;
        // SAFETY: mapped, aligned; only loaded from.
        Ok(unsafe { AtomicU64::from_ptr(ptr.as_ptr().cast()) }.load(order))
    }

    /// Compares the 64 bytes at `offset` with `reference`: bit i is set where byte i differs.
    ///
    /// The bytes are read in no particular order. To act on a set bit, load that byte again with
    /// [`Ordering::Acquire`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    #[inline]
    pub fn differing_bytes(
        &self,
        offset: usize,
        reference: &[u8; CACHE_LINE_BYTES],
    ) -> Result<u64, MemError> {
        let ptr = self.check(offset, CACHE_LINE_BYTES)?;
        // SAFETY: 64 bytes from `ptr` are mapped.
        Ok(unsafe { differing_bytes(ptr.as_ptr(), reference) })
    }

    /// Asks the processor to fetch the cache line at `offset`, if it is inside.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        if offset < self.bytes {
            prefetch(self.ptr.as_ptr().wrapping_add(offset));
        }
    }

    /// Asks the processor to fetch the cache line at `offset` for writing, if it is inside: takes
    /// it away from the core that read it last, while this thread continues.
    #[inline]
    pub fn prefetch_for_write(&self, offset: usize) {
        if offset < self.bytes {
            prefetch_for_write(self.ptr.as_ptr().wrapping_add(offset));
        }
    }
}

/// Returns how many bytes a system call moved. One that found no page is made again once they are touched:
/// only an access of this process brings the signal that replaces a page.
fn moved(pieces: &[VolatileSlice<'_>], call: impl Fn() -> isize) -> io::Result<usize> {
    let result = || usize::try_from(call()).map_err(|_| io::Error::last_os_error());
    match result() {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
            pieces.iter().for_each(VolatileSlice::touch);
            result()
        }
        done => done,
    }
}

fn aligned(ptr: NonNull<u8>, align: usize) -> Result<NonNull<u8>, MemError> {
    if (ptr.as_ptr() as usize).is_multiple_of(align) {
        Ok(ptr)
    } else {
        Err(MemError::Misaligned { addr: ptr.as_ptr() as u64, align })
    }
}

#[inline]
fn prefetch(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(ptr.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

#[inline]
fn prefetch_for_write(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // The intrinsic of the standard library becomes a prefetch for reading unless the program is
    // built for processors that are known to have this one. The others take it for a NOP.
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) ptr, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// # Safety
/// 64 bytes from `ptr` must be mapped.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn differing_bytes(ptr: *const u8, reference: &[u8; CACHE_LINE_BYTES]) -> u64 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
    let mut same = 0;
    for part in 0..4 {
        // SAFETY: 16 bytes from `16 * part` are inside of both; SSE2 is in every x86-64.
        let mask = unsafe {
            let ours: __m128i = std::ptr::read_volatile(ptr.add(16 * part).cast::<Unaligned>()).0;
            let theirs = _mm_loadu_si128(reference.as_ptr().add(16 * part).cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(ours, theirs))
        };
        same |= u64::from(mask as u16) << (16 * part);
    }
    !same
}

/// Sixteen bytes at any address, so that a volatile read of them is one instruction.
#[cfg(target_arch = "x86_64")]
#[repr(C, packed)]
struct Unaligned(std::arch::x86_64::__m128i);

/// # Safety
/// 64 bytes from `ptr` must be mapped.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn differing_bytes(ptr: *const u8, reference: &[u8; CACHE_LINE_BYTES]) -> u64 {
    let mut mask = 0;
    for (i, expected) in reference.iter().enumerate() {
        // SAFETY: `i < 64`.
        let seen = unsafe { std::ptr::read_volatile(ptr.add(i)) };
        mask |= u64::from(seen != *expected) << i;
    }
    mask
}

#[cfg(test)]
mod tests {
    use crate::mem::{MemError, Region, RegionOptions, VolatileSlice};
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn region(bytes: usize) -> Arc<Region> {
        Region::alloc(bytes, RegionOptions::default()).unwrap()
    }

    #[test]
    fn nothing_outside_of_a_slice_can_be_reached() {
        let region = region(128);
        let slice = region.slice(64, 64).unwrap();
        let mut byte = [0];
        for offset in [64, usize::MAX] {
            assert!(slice.read_at(offset, &mut byte).is_err());
            assert!(slice.write_at(offset, &byte).is_err());
            assert!(slice.atomic_u8(offset).is_err());
            assert!(slice.subslice(offset, 1).is_err());
        }
        assert!(slice.atomic_u64(57).is_err());
        assert!(slice.differing_bytes(1, &[0; 64]).is_err());
        assert!(slice.copy_from(1, region.slice(0, 64).unwrap()).is_err());
        assert!(matches!(slice.atomic_u64(4), Err(MemError::Misaligned { align: 8, .. })));
    }

    #[test]
    fn differing_bytes_names_each_byte() {
        let region = region(256);
        for at in 0..64 {
            region.whole().fill(7).unwrap();
            region.whole().write_at(64 + at, &[8]).unwrap();
            assert_eq!(region.whole().differing_bytes(64, &[7; 64]).unwrap(), 1 << at);
        }
        assert_eq!(region.whole().differing_bytes(3, &[9; 64]).unwrap(), u64::MAX);
    }

    #[test]
    fn chunks_cover_everything_once() {
        let region = region(10_001);
        let data: Vec<u8> = (0..10_001u32).map(|i| (i * 7 % 251) as u8).collect();
        region.whole().write_at(0, &data).unwrap();
        let mut seen = Vec::new();
        region.whole().for_each_chunk(|chunk| seen.extend_from_slice(chunk));
        assert_eq!(seen, data);
        assert_eq!(region.whole().to_vec(), data);
    }

    #[test]
    fn a_pipe_goes_in_and_out_without_a_buffer() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let region = region(64);
        region.whole().write_at(0, b"frame bytes").unwrap();
        assert_eq!(region.slice(0, 11).unwrap().write_to_fd(write.as_fd()).unwrap(), 11);
        let target = region.slice(32, 32).unwrap();
        assert_eq!(target.read_from_fd(read.as_fd()).unwrap(), 11);
        assert_eq!(&target.to_vec()[..11], b"frame bytes");
    }

    #[test]
    fn pieces_go_out_in_order_with_one_call() {
        let region = region(64);
        region.whole().write_at(0, b"one two three").unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let piece = |offset, bytes| region.slice(offset, bytes).unwrap();
        let pieces = [piece(8, 5), piece(3, 1), piece(0, 3), piece(0, 0)];
        let written = VolatileSlice::write_all_to_fd(&pieces, write.as_fd());
        assert_eq!(written.unwrap(), 9);
        let many = vec![piece(0, 1); 40];
        let written = VolatileSlice::write_all_to_fd(&many, write.as_fd());
        assert_eq!(written.unwrap(), 16, "the first 16 of them");
        let target = region.slice(32, 32).unwrap();
        assert_eq!(target.read_from_fd(read.as_fd()).unwrap(), 25);
        assert_eq!(&target.to_vec()[..10], b"three oneo");
    }

    #[test]
    fn atomics_are_the_same_memory() {
        let region = region(64);
        region.whole().atomic_u64(8).unwrap().store(0x0102_0304, Ordering::Release);
        assert_eq!(region.whole().load_u8(8, Ordering::Acquire).unwrap(), 4);
        assert_eq!(
            region.whole().atomic_u32(8).unwrap().fetch_add(1, Ordering::AcqRel),
            0x0102_0304
        );
        assert_eq!(region.whole().load_u64(8, Ordering::Acquire).unwrap(), 0x0102_0305);
    }
}
