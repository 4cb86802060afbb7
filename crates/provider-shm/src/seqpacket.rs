//! Unix sockets that preserve message boundaries (`SOCK_SEQPACKET`): messages with descriptors, between
//! processes of one host. One receive is one message, and a peer cannot leave a partial one.
pub use crate::credentials::Credentials;
use rustix::fs::OFlags;
use rustix::io::Errno;
pub use rustix::net::SocketAddrUnix;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most descriptors of one message.
pub const MAX_FDS: usize = 3;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Returns the address of this name: no file, and it vanishes with its owner.
///
/// # Errors
/// When the name is too long.
pub fn abstract_address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

/// Listens at an address.
///
/// # Errors
/// Those of socket(2), bind(2), listen(2).
pub fn listen(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let fd = socket()?;
    rustix::net::bind(&fd, address)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Connects to an address; waits until `deadline` while too many others do the same.
///
/// # Errors
/// Those of socket(2) and connect(2).
pub fn connect(address: &SocketAddrUnix, deadline: Instant) -> io::Result<OwnedFd> {
    let fd = socket()?;
    loop {
        match rustix::net::connect(&fd, address) {
            Ok(()) => return Ok(fd),
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                // Until the listener has accepted others, for which the system has no event.
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Accepts a connection.
///
/// # Errors
/// Those of accept(2).
pub fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Sends one message. Never blocks.
///
/// # Errors
/// Those of sendmsg(2).
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::net::sendmsg(fd, &[IoSlice::new(bytes)], &mut control, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Takes one message; `None` when the peer is gone. Never blocks. Descriptors that did not fit or
/// a message that is too long are an error; descriptors received with it are closed. The error is
/// that of the system ([`is_exhausted`]) if this process has no descriptor left.
///
/// # Errors
/// As above, and those of recvmsg(2).
pub fn recv(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let seen = rustix::net::recvmsg(fd, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if seen.flags.contains(ReturnFlags::CTRUNC) && descriptors.len() < MAX_FDS {
        // There was room for more, so the system had none for this process.
        return Err(Errno::MFILE.into());
    }
    if seen.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        // The system also cuts the descriptors off that this process has no room for. While those that
        // came are held, another copy shows it.
        rustix::io::fcntl_dupfd_cloexec(fd, 0)?;
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message or its descriptors are longer than any of this protocol",
        ));
    }
    Ok((seen.bytes > 0).then_some((seen.bytes, descriptors)))
}

/// Returns a descriptor that a peer gave to ring, such that who rings does not wait: a full pipe would hold
/// the thread, and the service thread with all its peers.
///
/// # Errors
/// Those of fcntl(2).
pub fn never_waiting(bell: OwnedFd) -> io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&bell)?;
    rustix::fs::fcntl_setfl(&bell, flags | OFlags::NONBLOCK)?;
    Ok(bell)
}

/// Returns whether no descriptor is left, or too many are on their way.
pub fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS))
}
