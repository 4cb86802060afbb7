//! The unix sockets between contexts: names, credentials, messages with descriptors.
//!
//! The sockets preserve message boundaries (`SOCK_SEQPACKET`), so one receive is one message and a
//! peer cannot leave a partial one.
use catchment_verbs::Gid;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use sha2::{Digest as _, Sha256};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
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

/// Refuses every peer that is neither the same user nor root.
pub(crate) fn check_credentials(fd: &OwnedFd) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(fd)?;
    let ours = rustix::process::geteuid();
    if peer.uid == ours || peer.uid.is_root() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "process {} belongs to user {}, this one to user {}; run both as the same user",
            peer.pid.as_raw_nonzero(),
            peer.uid.as_raw(),
            ours.as_raw()
        ),
    ))
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
/// a message that is too long are an error; descriptors received with it are closed.
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
    if seen.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message or its descriptors are longer than any of this protocol",
        ));
    }
    Ok((seen.bytes > 0).then_some((seen.bytes, descriptors)))
}
