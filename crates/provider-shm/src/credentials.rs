//! Who is at the other end of a socket. The only module of the crate with `unsafe`.
#![allow(
    unsafe_code,
    reason = "the process number of another PID namespace is 0, which rustix's type excludes"
)]
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What the kernel noted of the process that connected or listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Its number, or 0 if it has none in our PID namespace.
    pub process: u32,
    /// Its effective user.
    pub user: u32,
}

impl Credentials {
    /// Asks the kernel.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn of_peer(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mut seen = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: both pointers are to values of the types that SO_PEERCRED fills, `bytes` long at most.
        let done = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut seen).cast(),
                &raw mut bytes,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { process: u32::try_from(seen.pid).unwrap_or(0), user: seen.uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let seen = Credentials::of_peer(ours.as_fd()).unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(seen, Credentials { process: std::process::id(), user });
    }
}
