//! The system calls that no crate wraps, each behind a safe function.
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem};

/// Most messages of one [`send`] or [`recv`].
pub(super) const MAX_MESSAGES: usize = 64;

/// Sets an integer option.
pub(super) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let bytes = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer is valid for `bytes` bytes during the call.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    done(result)
}

/// Reads an integer option.
pub(super) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut bytes = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: both pointers are valid during the call, which writes at most `bytes` bytes.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut bytes)
    };
    done(result).map(|()| value)
}

/// Returns the MTU of an interface; none if it is down.
pub(super) fn mtu_if_up(fd: BorrowedFd<'_>, name: &str) -> io::Result<Option<u32>> {
    let flags = ask_interface(fd, name, libc::SIOCGIFFLAGS as _)?;
    // SAFETY: the call succeeded, so this member of the union is the one that was written.
    let flags = unsafe { flags.ifr_ifru.ifru_flags };
    if i32::from(flags) & libc::IFF_UP == 0 {
        return Ok(None);
    }
    let mtu = ask_interface(fd, name, libc::SIOCGIFMTU as _)?;
    // SAFETY: as above.
    let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).ok())
}

fn ask_interface(fd: BorrowedFd<'_>, name: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request is a valid ifreq during the call, which writes one member of its union.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw mut request) };
    done(result).map(|()| request)
}

/// One message of a batch, as the kernel takes it. All-zero is valid: an empty message.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Message(libc::mmsghdr);

impl Message {
    pub(super) fn empty() -> Self {
        // SAFETY: all-zero is a valid mmsghdr: no name, no data, no control.
        Self(unsafe { mem::zeroed() })
    }

    /// # Safety
    /// The memory of all arguments and that the vectors point to must stay valid, and for
    /// receiving writable, until the last [`send`] or [`recv`] of this message.
    pub(super) unsafe fn new(
        name: (*mut libc::c_void, usize),
        vectors: (*mut libc::iovec, usize),
        control: (*mut libc::c_void, usize),
    ) -> Self {
        let mut message = Self::empty();
        let header = &mut message.0.msg_hdr;
        header.msg_name = name.0;
        header.msg_namelen = name.1 as _;
        header.msg_iov = vectors.0;
        header.msg_iovlen = vectors.1 as _;
        header.msg_control = control.0;
        header.msg_controllen = control.1 as _;
        message
    }

    /// Returns the number of bytes that were sent or received.
    pub(super) fn bytes(&self) -> usize {
        self.0.msg_len as usize
    }

    /// Flags of a received message.
    pub(super) fn flags(&self) -> i32 {
        self.0.msg_hdr.msg_flags
    }

    /// Returns the number of bytes of a received message's control data.
    #[allow(clippy::unnecessary_cast, reason = "C libraries differ in the type of the field")]
    pub(super) fn control_bytes(&self) -> usize {
        self.0.msg_hdr.msg_controllen as usize
    }
}

/// Calls sendmmsg(2), never blocking; returns how many messages were sent, at least one.
///
/// # Safety
/// As promised to [`Message::new`].
pub(super) unsafe fn send(fd: BorrowedFd<'_>, messages: &mut [Message]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: `Message` is a transparent mmsghdr; the caller guarantees what it points to.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                messages.len() as _,
                flags as _,
            )
        };
        match count(sent) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Calls recvmmsg(2), never blocking; returns how many messages arrived, at least one.
///
/// # Safety
/// As promised to [`Message::new`].
pub(super) unsafe fn recv(fd: BorrowedFd<'_>, messages: &mut [Message]) -> io::Result<usize> {
    loop {
        // SAFETY: `Message` is a transparent mmsghdr; the caller guarantees what it points to.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                messages.len() as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        match count(received) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn count(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
