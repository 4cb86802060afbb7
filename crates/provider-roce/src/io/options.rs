//! How a socket is set up, and what the system made of it.
use super::sys;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Values that `libc` lacks for some C libraries.
const SO_NO_CHECK: i32 = 11;

/// How to set up a [`super::UdpSocket`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOptions {
    /// UDP checksum on what is sent. Between two of our stacks it must be on: the kernel merges
    /// only packets that have one (GRO), and cuts only sends that want one (GSO). Turning it off
    /// turns GSO off. What comes without a checksum is always taken.
    pub checksum: bool,
    /// Let the kernel cut a large send into packets (UDP_SEGMENT).
    pub gso: bool,
    /// Let the kernel merge packets that come in a row (UDP_GRO).
    pub gro: bool,
    /// Receive buffer to ask for, in bytes of payload. The kernel drops what does not fit.
    pub receive_buffer_bytes: usize,
    /// Send buffer to ask for, in bytes of payload.
    pub send_buffer_bytes: usize,
    /// Ports that packets leave from, besides the one that is bound: one of them for each queue pair, so that
    /// routers and receive queues spread them. Each is a descriptor. 0: all leave from the bound port.
    pub source_ports: usize,
    /// Microseconds that the kernel polls the network adapter in a receive; `None` leaves it off.
    pub busy_poll_us: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            checksum: true,
            gso: true,
            gro: true,
            receive_buffer_bytes: 16 << 20,
            send_buffer_bytes: 4 << 20,
            source_ports: 8,
            busy_poll_us: None,
        }
    }
}

/// A socket buffer: what was asked for and what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSize {
    /// Bytes asked for.
    pub asked_bytes: usize,
    /// Bytes that the kernel counts against, its own overhead included: twice the payload asked
    /// for where nothing limited it.
    pub kernel_bytes: usize,
}

impl BufferSize {
    /// Returns whether the system granted less than requested. Remedy: `CAP_NET_ADMIN`, or a larger
    /// `net.core.rmem_max` / `wmem_max`.
    pub fn is_limited(&self) -> bool {
        self.kernel_bytes < self.asked_bytes * 2
    }
}

/// Opens a UDP socket that never blocks.
pub(super) fn open(ipv6: bool) -> io::Result<OwnedFd> {
    let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if ipv6 {
        // IPv4 has sockets of its own.
        rustix::net::sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

/// Returns the address that a socket is bound to.
pub(super) fn local_address(fd: &OwnedFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd)?).map_err(io::Error::from)
}

/// Options that every socket needs; without one of them packets would be wrong.
pub(super) fn demand(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let wanted = if ipv6 { IPV6_OPTIONS } else { IPV4_OPTIONS };
    for (level, name, value) in wanted {
        sys::set_option(fd, *level, *name, *value)?;
    }
    Ok(())
}

/// Don't-fragment on an unconnected socket makes the kernel send identification 0, which the ICRC
/// covers.
const IPV4_OPTIONS: &[(i32, i32, i32)] = &[
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
    (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
];

/// NICs and the kernel's rxe send no checksum on IPv6, which is dropped unless asked for.
const IPV6_OPTIONS: &[(i32, i32, i32)] = &[
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
    (libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1),
];

/// No checksum on what is sent.
pub(super) fn drop_checksum(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        sys::set_option(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1)
    } else {
        sys::set_option(fd, libc::SOL_SOCKET, SO_NO_CHECK, 1)
    }
}

/// Asks for a receive buffer; privileged where possible, otherwise up to `net.core.rmem_max`.
pub(super) fn receive_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<BufferSize> {
    buffer(fd, bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
}

/// Asks for a send buffer; privileged where possible, otherwise up to `net.core.wmem_max`.
pub(super) fn send_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<BufferSize> {
    buffer(fd, bytes, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
}

fn buffer(fd: BorrowedFd<'_>, bytes: usize, force: i32, ask: i32) -> io::Result<BufferSize> {
    // The kernel doubles it in an int.
    let value = i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2);
    if sys::set_option(fd, libc::SOL_SOCKET, force, value).is_err() {
        sys::set_option(fd, libc::SOL_SOCKET, ask, value)?;
    }
    let kernel = sys::option(fd, libc::SOL_SOCKET, ask)?;
    Ok(BufferSize { asked_bytes: bytes, kernel_bytes: usize::try_from(kernel).unwrap_or(0) })
}
