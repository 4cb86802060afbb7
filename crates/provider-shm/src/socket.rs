//! The unix sockets between contexts: names, credentials, messages with descriptors.
//!
//! The sockets preserve message boundaries (`SOCK_SEQPACKET`), so one receive is one message and a
//! peer cannot leave a partial one.
use crate::credentials::Credentials;
use crate::proto::{MESSAGE_BYTES, Refusal, Reply};
use catchment_verbs::{Gid, event};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use sha2::{Digest as _, Sha256};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most descriptors of one message.
pub(crate) const MAX_FDS: usize = 3;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Returns the abstract address of a context: no file, and it vanishes with its owner. The GID is the secret
/// that lets a peer in, so the name, which /proc/net/unix shows to everyone, is a digest of it.
fn address(gid: Gid) -> io::Result<SocketAddrUnix> {
    let digest: [u8; 32] = Sha256::digest(gid.0).into();
    let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(SocketAddrUnix::new_abstract_name(format!("catchment-shm-{name}").as_bytes())?)
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

/// Listens under the name of `gid`.
pub(crate) fn listen(gid: Gid) -> io::Result<OwnedFd> {
    let fd = socket()?;
    rustix::net::bind(&fd, &address(gid)?)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Connects to the context `gid`; waits until `deadline` while too many others do the same.
pub(crate) fn connect(gid: Gid, deadline: Instant) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let address = address(gid)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                // Until the listener has accepted others, for which the system has no event.
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e.into()),
        }
    }
    check_credentials(&fd)?;
    Ok(fd)
}

/// Accepts a connection. Few answers fit into it that its peer does not read, so that few
/// descriptors are on their way to it.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::accept_with(listener, flags)?;
    // The system rounds it up to the least that it allows: a handful of messages.
    rustix::net::sockopt::set_socket_send_buffer_size(&fd, 1)?;
    Ok(fd)
}

/// Returns whether the peer has read all answers, or all but one or two.
pub(crate) fn is_read(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::OUT)];
    let polled = rustix::event::poll(&mut fds, Some(&event::timespec(Duration::ZERO)));
    polled.is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

/// Refuses every peer that is neither the same user nor root. Returns the number of its process, 0
/// if that is of another PID namespace.
pub(crate) fn check_credentials(fd: &OwnedFd) -> io::Result<u32> {
    let peer = Credentials::of_peer(fd.as_fd())?;
    let ours = rustix::process::geteuid().as_raw();
    if peer.user == ours || peer.user == 0 {
        return Ok(peer.process);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "process {} belongs to user {}, this one to user {ours}; run both as the same user",
            peer.process, peer.user,
        ),
    ))
}

/// Discards what waits to be read: who closes with something unread resets its peer, which then may
/// not see the last answer.
pub(crate) fn drain(fd: &OwnedFd) {
    let mut bytes = [0; MESSAGE_BYTES];
    while matches!(recv(fd.as_fd(), &mut bytes), Ok(Some(_))) {}
}

/// Sends a refusal. Lost if the peer does not read.
pub(crate) fn send_refusal(fd: &OwnedFd, reason: Refusal) {
    let _ = send(fd.as_fd(), &Reply::Refused(reason).encode(), &[]);
}

/// Sends one message. Never blocks.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
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
pub(crate) fn recv(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
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
pub(crate) fn never_waiting(bell: OwnedFd) -> io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&bell)?;
    rustix::fs::fcntl_setfl(&bell, flags | OFlags::NONBLOCK)?;
    Ok(bell)
}

/// Returns whether no descriptor is left, or too many are on their way.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS))
}
