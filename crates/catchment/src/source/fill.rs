//! Inputs write into frames: from a pipe, the kernel copies straight into registered memory.
use super::FrameContents;
use crate::input::{FillError, FrameBuffer, read_waiting, wait_readable};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Bytes moved at a time where the frame is not in registered memory.
const CHUNK_BYTES: usize = 64 << 10;

impl FrameBuffer for FrameContents {
    fn fill_from(&mut self, from: BorrowedFd<'_>, bytes: usize) -> Result<usize, FillError> {
        if bytes > self.bytes_left() {
            return Err(FillError::Write(io::ErrorKind::WriteZero.into()));
        }
        let mut filled = 0;
        while filled < bytes {
            let got = self.read_some(from, bytes - filled);
            match got.map_err(FillError::Read)? {
                0 => break,
                got => filled += got,
            }
        }
        Ok(filled)
    }
}

impl FrameContents {
    /// One read of at most `most` bytes. 0 is the end of `from`.
    fn read_some(&mut self, from: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let Some(memory) = self.memory() else {
            let mut chunk = [0; CHUNK_BYTES];
            let got = read_waiting(from, &mut chunk[..most.min(CHUNK_BYTES)])?;
            self.put(&chunk[..got]);
            return Ok(got);
        };
        let memory = memory.subslice(0, most).map_err(io::Error::other)?;
        let got = loop {
            match memory.read_from_fd(from.as_fd()) {
                Ok(got) => break got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_again(&error) => wait_readable(from)?,
                Err(error) => return Err(error),
            }
        };
        self.advance(got);
        Ok(got)
    }
}

fn is_again(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
}
