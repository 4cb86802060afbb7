//! What the library's functions answer.
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// What functions answer that give an error number, or -1 and leave it in `errno`.
pub(super) fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        ..0 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// What functions answer that give an object, or null and leave the error in `errno`.
pub(super) fn object<T>(made: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(made).ok_or_else(io::Error::last_os_error)
}

/// Logs an object that the library did not take back. Nothing else can be done about it.
pub(super) fn destroyed(what: &str, code: c_int) {
    if let Err(error) = check(code) {
        tracing::warn!(%error, "{what}");
    }
}

pub(super) fn non_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}
