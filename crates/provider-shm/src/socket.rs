//! The unix sockets between contexts: names and credentials.
use crate::proto::{MESSAGE_BYTES, Refusal, Reply};
use crate::seqpacket::{self, Credentials, SocketAddrUnix};
pub(crate) use crate::seqpacket::{is_exhausted, never_waiting, recv, send};
use catchment_verbs::{Gid, event};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// Returns the abstract address of a context: no file, and it vanishes with its owner. The GID is the secret
/// that lets a peer in, so the name, which /proc/net/unix shows to everyone, is a digest of it.
fn address(gid: Gid) -> io::Result<SocketAddrUnix> {
    let digest: [u8; 32] = Sha256::digest(gid.0).into();
    let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    seqpacket::abstract_address(&format!("catchment-shm-{name}"))
}

/// Listens under the name of `gid`.
pub(crate) fn listen(gid: Gid) -> io::Result<OwnedFd> {
    seqpacket::listen(&address(gid)?)
}

/// Connects to the context `gid`; waits until `deadline` while too many others do the same.
pub(crate) fn connect(gid: Gid, deadline: Instant) -> io::Result<OwnedFd> {
    let fd = seqpacket::connect(&address(gid)?, deadline)?;
    check_credentials(&fd)?;
    Ok(fd)
}

/// Accepts a connection. Few answers fit into it that its peer does not read, so that few
/// descriptors are on their way to it.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let fd = seqpacket::accept(listener)?;
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
