//! The path to a peer: its local address, and the longest packet.
use super::sys;
use catchment_roce::wire::PathMtu;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// There is no path to a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// No route of this host leads there.
    #[error("no route to {remote} from {local}: {source}")]
    Unreachable {
        /// The peer.
        remote: SocketAddr,
        /// The local address.
        local: IpAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Not even the smallest path MTU fits.
    #[error("the MTU of {ip_mtu} to {remote} is too small for RoCE: 256 bytes of payload need 324")]
    TooSmall {
        /// The peer.
        remote: SocketAddr,
        /// The MTU, IP header included.
        ip_mtu: u32,
    },
}

/// The path to a peer, according to the kernel's current routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("{local} to {}: MTU {ip_mtu}, RoCE path MTU {}", remote.ip(), path_mtu.bytes())]
pub struct Path {
    /// The local address that packets are sent from.
    pub local: IpAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Longest IP packet in bytes: that of the interface, or less if a router reported so.
    pub ip_mtu: u32,
    /// The largest RoCE path MTU that fits.
    pub path_mtu: PathMtu,
}

/// Queries the paths from one address to many peers, in the network namespace of the thread that
/// created it. Uses one descriptor and sends nothing.
#[derive(Debug)]
pub struct PathProbe {
    fd: OwnedFd,
    local: SocketAddr,
}

impl PathProbe {
    /// Creates a probe of paths that start at this address; its port does not matter.
    ///
    /// # Errors
    /// When the address is not one of this host's, or there is no descriptor left.
    pub fn new(local: SocketAddr) -> io::Result<Self> {
        let family = match local {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let mut from = local;
        from.set_port(0);
        rustix::net::bind(&fd, &from)?;
        Ok(Self { fd, local })
    }

    /// Returns the path to `remote`.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn probe(&self, remote: SocketAddr) -> Result<Path, PathError> {
        let asked = self.ask(remote).map_err(|source| PathError::Unreachable {
            remote,
            local: self.local.ip(),
            source,
        })?;
        path(asked, remote)
    }

    /// Returns the length in bytes of the longest IP packet to `remote`.
    pub(super) fn ip_mtu(&self, remote: SocketAddr) -> io::Result<u32> {
        self.ask(remote).map(|(_, mtu)| mtu)
    }

    /// Connecting a UDP socket looks up the route and sends nothing.
    fn ask(&self, remote: SocketAddr) -> io::Result<(IpAddr, u32)> {
        let (level, name) = match remote {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        rustix::net::connect(&self.fd, &remote)?;
        let from = rustix::net::getsockname(&self.fd)?;
        let from = SocketAddr::try_from(from).map_err(io::Error::from)?;
        let mtu = sys::option(self.fd.as_fd(), level, name)?;
        let mtu = u32::try_from(mtu).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok((from.ip(), mtu))
    }
}

fn path((local, ip_mtu): (IpAddr, u32), remote: SocketAddr) -> Result<Path, PathError> {
    let fitting = PathMtu::for_interface_mtu(ip_mtu as usize, remote.is_ipv6());
    Ok(Path {
        local,
        remote,
        ip_mtu,
        path_mtu: fitting.ok_or(PathError::TooSmall { remote, ip_mtu })?,
    })
}
