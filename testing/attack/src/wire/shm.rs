//! The handshake of shared memory: fixed messages with descriptors over abstract unix sockets.
use anyhow::{Context as _, Result, ensure};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use sha2::{Digest as _, Sha256};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

pub(crate) const BYTES: usize = 64;
const MAX_FDS: usize = 3;

/// Kinds of replies.
pub(crate) const HELLO_REPLY: u16 = 101;
pub(crate) const REGION_REPLY: u16 = 103;

pub(crate) fn gid(hex: &str) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    ensure!(hex.len() == 32, "{hex:?} is no GID");
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16)?;
    }
    Ok(bytes)
}

/// Names under which contexts of this network namespace listen.
pub(crate) fn listeners() -> Vec<String> {
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = all.lines().filter_map(|line| line.split_once('@').map(|(_, name)| name));
    let mut names: Vec<_> =
        names.filter(|name| name.starts_with("catchment-shm-")).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// The names that a context of this GID may have: of version 1, and of later ones.
pub(crate) fn names_of(gid: [u8; 16]) -> [String; 2] {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let digest = Sha256::digest(gid);
    [gid.as_slice(), &digest[..16]].map(|bytes| format!("catchment-shm-{}", hex(bytes)))
}

/// A message of this version of the handshake.
pub(crate) fn message(version: u16, kind: u16, fields: &[u8]) -> Vec<u8> {
    let mut bytes = b"CShm".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend_from_slice(fields);
    bytes.resize(BYTES, 0);
    bytes
}

/// Says that the caller is `own`, and shows that it knows `peer`, where the version asks for that.
pub(crate) fn hello(version: u16, own: [u8; 16], peer: [u8; 16]) -> Vec<u8> {
    let peer = if version < 3 { &[][..] } else { &peer };
    message(version, 1, &[own.as_slice(), peer].concat())
}

pub(crate) fn resolve(version: u16, qpn: u32, rkey: u32) -> Vec<u8> {
    message(version, 3, &[qpn.to_le_bytes(), rkey.to_le_bytes()].concat())
}

/// Asks to connect a queue pair with an inbox of this many bytes.
pub(crate) fn open_qp(version: u16, target: u32, own: u32, ring_bytes: u32) -> Vec<u8> {
    let mut fields = [target, own, 0xf].map(u32::to_le_bytes).concat();
    fields.extend(1_u64.to_le_bytes());
    fields.extend([ring_bytes, 64, 640, 0].map(u32::to_le_bytes).concat());
    message(version, 2, &fields)
}

/// A connection to a context.
pub(crate) struct Link(OwnedFd);

impl Link {
    pub(crate) fn connect(name: &str) -> Result<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        let limit = Some(Duration::from_secs(2));
        rustix::net::sockopt::set_socket_timeout(&fd, rustix::net::sockopt::Timeout::Recv, limit)?;
        rustix::net::sockopt::set_socket_timeout(&fd, rustix::net::sockopt::Timeout::Send, limit)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)
            .with_context(|| format!("cannot connect to {name}"))?;
        Ok(Self(fd))
    }

    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(bytes)];
        rustix::net::sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a message with its descriptors; an error once the other side has hung up.
    pub(crate) fn receive(&self) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let seen = rustix::net::recvmsg(self.0.as_fd(), &mut parts, &mut control, flags)?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        ensure!(seen.bytes > 0, "it hung up");
        bytes.truncate(seen.bytes);
        Ok((bytes, descriptors))
    }

    pub(crate) fn ask(&self, bytes: &[u8]) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        self.send(bytes, &[])?;
        self.receive()
    }
}

/// The kind of a reply.
pub(crate) fn kind(reply: &[u8]) -> u16 {
    reply.get(6..8).and_then(|kind| kind.try_into().ok()).map_or(0, u16::from_le_bytes)
}
