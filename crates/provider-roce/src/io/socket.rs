//! One UDP socket of a device.
use super::options::{self, BufferSize, SocketOptions};
use super::path::{Path, PathError, PathProbe};
use super::source_ports::SourcePorts;
use super::{BindError, Capabilities, Datagrams, Incoming, Outgoing, sys};
use catchment_verbs::sync::Mutex;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An unconnected UDP socket, bound to one address.
///
/// Unconnected, because the kernel gives IPv4 packets of a connected socket an identification that
/// cannot be predicted, and the ICRC covers it.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    receive_buffer: BufferSize,
    send_buffer: BufferSize,
    gso: bool,
    gro: bool,
    ports: SourcePorts,
    /// Not the socket of the packets: connecting a socket changes what it sends.
    paths: Mutex<PathProbe>,
}

impl UdpSocket {
    /// Opens a socket in the network namespace of the calling thread. Port 0 lets the kernel
    /// choose.
    ///
    /// # Errors
    /// [`BindError::InUse`], [`BindError::NotLocal`] (also
    /// for all addresses at once, `0.0.0.0` or `::`: the ICRC covers the one), [`BindError::Os`].
    pub fn bind(address: SocketAddr, wanted: &SocketOptions) -> Result<Self, BindError> {
        if address.ip().is_unspecified() {
            return Err(BindError::refused(address, Errno::ADDRNOTAVAIL));
        }
        let os = |call| move |source: io::Error| BindError::Os { address, call, source };
        let ipv6 = address.is_ipv6();
        let fd = options::open(ipv6).map_err(os("socket"))?;
        options::demand(fd.as_fd(), ipv6).map_err(os("setsockopt"))?;
        if !wanted.checksum {
            options::drop_checksum(fd.as_fd(), ipv6).map_err(os("setsockopt(no checksum)"))?;
        }
        let receive_buffer = options::receive_buffer(fd.as_fd(), wanted.receive_buffer_bytes)
            .map_err(os("setsockopt(SO_RCVBUF)"))?;
        let send_buffer = options::send_buffer(fd.as_fd(), wanted.send_buffer_bytes)
            .map_err(os("setsockopt(SO_SNDBUF)"))?;
        if let Some(us) = wanted.busy_poll_us {
            let us = i32::try_from(us).unwrap_or(i32::MAX);
            sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, us)
                .map_err(os("setsockopt(SO_BUSY_POLL)"))?;
        }
        // A kernel without GRO (before 5.0) delivers single packets, which is slower but no error.
        let gro =
            wanted.gro && sys::set_option(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        rustix::net::bind(&fd, &address).map_err(|errno| BindError::refused(address, errno))?;
        let local = options::local_address(&fd).map_err(os("getsockname"))?;
        let gso = wanted.gso && wanted.checksum && knows_gso(fd.as_fd());
        let paths = PathProbe::new(local).map_err(os("a socket to ask for routes"))?;
        let ports = SourcePorts::open(local, wanted);
        let paths = Mutex::new(paths);
        Ok(Self { fd, local, receive_buffer, send_buffer, gso, gro, ports, paths })
    }

    /// Returns its bound address: the requested one, with the port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns whether it may hand trains to the kernel in one piece.
    pub fn has_gso(&self) -> bool {
        self.gso
    }

    /// Returns whether the kernel merges packets for it.
    pub fn has_gro(&self) -> bool {
        self.gro
    }

    /// Returns the size of its receive buffer.
    pub fn receive_buffer(&self) -> BufferSize {
        self.receive_buffer
    }

    /// Returns the size of its send buffer.
    pub fn send_buffer(&self) -> BufferSize {
        self.send_buffer
    }
}

impl Datagrams for UdpSocket {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            segmentation: self.gso,
            coalescing: self.gro,
            receive_buffer_bytes: self.receive_buffer.kernel_bytes,
        }
    }

    fn ip_mtu(&self) -> io::Result<u32> {
        let all = super::local_addresses()?;
        match all.iter().find(|at| at.address == self.local.ip()) {
            Some(at) => Ok(at.mtu),
            // An address of loopback that is not listed, such as 127.0.0.2, has a path to itself.
            None => self.paths.lock().ip_mtu(self.local),
        }
    }

    fn path_to(&self, remote: SocketAddr) -> Result<Path, PathError> {
        self.paths.lock().probe(remote)
    }

    fn source_port(&self, qpn: u32) -> u16 {
        self.ports.of(qpn).unwrap_or(self.local.port())
    }

    /// One call sends what leaves from one port.
    fn send(&self, trains: &mut Outgoing<'_>) -> io::Result<usize> {
        let start = trains.range.start;
        let mut all = trains.trains().map(|train| train.route().local.port());
        let Some(port) = all.next() else { return Ok(0) };
        let end = start + 1 + all.take_while(|other| *other == port).count();
        let (at, fd) = self.ports.socket(port).unzip();
        let sent = trains.batch.send_to_socket(start..end, fd.unwrap_or(self.fd.as_fd()));
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.ports.note_full(at);
        }
        sent
    }

    fn send_one(&self, from: SocketAddr, remote: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let fd = self.ports.socket(from.port()).map_or(self.fd.as_fd(), |(_, fd)| fd);
        rustix::net::sendto(fd, bytes, SendFlags::DONTWAIT, &remote)?;
        Ok(())
    }

    fn receive(&self, ring: &mut Incoming<'_>) -> io::Result<usize> {
        ring.ring.receive_from_socket(self.fd.as_fd(), self.local)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn full_fd(&self) -> BorrowedFd<'_> {
        self.ports.full().unwrap_or(self.fd.as_fd())
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns whether the kernel knows UDP_SEGMENT (4.18 and later).
fn knows_gso(fd: BorrowedFd<'_>) -> bool {
    sys::option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}
