//! The destination of a frame: memory that can only be appended to, never borrowed.
//!
//! A NIC or another process may read a block of registered memory at any time, so no `&mut [u8]` to
//! it exists. A [`FrameBuffer`] is an [`io::Write`] over it, with one hook to read from a descriptor
//! straight into it.
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

/// Bytes that the default [`FrameBuffer::fill_from`] moves at a time: a pipe's usual capacity,
/// small enough to stay in the second-level cache between its read and its write.
const CHUNK_BYTES: usize = 64 << 10;

/// The destination of one frame.
///
/// Frames are written front to back. The buffer refuses more bytes than the frame has; `flush` does
/// nothing.
pub trait FrameBuffer: Write {
    /// Appends exactly `bytes` bytes read from `from`, fewer only where `from` ends. Returns
    /// how many were appended. Waits for data even if `from` is non-blocking.
    ///
    /// The default copies through a buffer on the stack. An implementation whose memory the
    /// kernel can write to directly saves that copy.
    ///
    /// # Errors
    /// [`FillError::Read`] when `from` cannot be read, [`FillError::Write`] when the buffer
    /// refuses the bytes.
    fn fill_from(&mut self, from: BorrowedFd<'_>, bytes: usize) -> Result<usize, FillError> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut filled = 0;
        while filled < bytes {
            let wanted = CHUNK_BYTES.min(bytes - filled);
            let got = read_waiting(from, &mut chunk[..wanted]).map_err(FillError::Read)?;
            if got == 0 {
                break;
            }
            self.write_all(&chunk[..got]).map_err(FillError::Write)?;
            filled += got;
        }
        Ok(filled)
    }
}

/// A frame in ordinary memory, for tests and tools. The caller clears it between frames.
impl FrameBuffer for Vec<u8> {}

/// Discards frames.
impl FrameBuffer for io::Sink {}

/// Which side of [`FrameBuffer::fill_from`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// Reading the input failed.
    #[error("reading failed: {0}")]
    Read(#[source] io::Error),
    /// The buffer refused the bytes.
    #[error("the frame buffer refused bytes: {0}")]
    Write(#[source] io::Error),
}

/// Reads once; waits where `from` is non-blocking and retries after a signal. 0 is the end.
pub fn read_waiting(from: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(from, &mut *into) {
            Ok(got) => return Ok(got),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_readable(from)?,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until `from` is readable.
pub fn wait_readable(from: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(from, PollFlags::IN)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
