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

/// An object of the library. Dropping this gives it back: so in a structure it stands before what
/// keeps alive what it was made from.
pub(super) struct Object<T> {
    object: NonNull<T>,
    give_back: GiveBack<T>,
    what: &'static str,
}

type GiveBack<T> = unsafe extern "C" fn(*mut T) -> c_int;

// SAFETY: libibverbs and its drivers lock what threads share (ibv_open_device(3) and the verbs
// specification, 10.2.8: all verbs are thread-safe).
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    /// `what` says what giving it back is, for the log.
    ///
    /// # Safety
    /// `give_back` may be called with `object` once nothing made from it is left, which is when this
    /// is dropped, and nobody else does so.
    pub(super) unsafe fn new(
        object: NonNull<T>,
        give_back: GiveBack<T>,
        what: &'static str,
    ) -> Self {
        Self { object, give_back, what }
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: as promised to `new`: what was made from the object kept it alive.
        if let Err(error) = check(unsafe { (self.give_back)(self.as_ptr()) }) {
            // Nothing else can be done about it.
            tracing::warn!(%error, "{}", self.what);
        }
    }
}

/// What functions answer that give an object, or null and leave the error in `errno`.
pub(super) fn made<T>(object: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(object).ok_or_else(io::Error::last_os_error)
}

pub(super) fn non_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}
