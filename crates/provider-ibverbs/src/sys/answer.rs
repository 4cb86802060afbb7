//! Results of the library's functions.
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Converts the result of functions that return an error number, or -1 with `errno`.
pub(super) fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        ..0 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// An object of the library. Dropping this destroys it: so in a structure it comes before the
/// fields that keep alive what it was created from.
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
    /// `what` names its destruction, for the log.
    ///
    /// # Safety
    /// `give_back` may be called with `object` once nothing created from it is left, which is when
    /// this is dropped, and is not called elsewhere.
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
            // There is no other remedy.
            tracing::warn!(%error, "{}", self.what);
        }
    }
}

/// Converts the result of functions that return an object, or null with `errno`.
pub(super) fn made<T>(object: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(object).ok_or_else(io::Error::last_os_error)
}

pub(super) fn non_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}
