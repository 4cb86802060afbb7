//! The way to a peer: which address of ours it starts from, and how long packets may be.
use super::{UdpSocket, sys};
use catchment_roce::wire::PathMtu;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd,
};

/// No way to a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The routes of this host do not lead there.
    #[error("no route to {remote}{}: {source}", from_text(.local))]
    Unreachable {
        /// The peer.
        remote: SocketAddr,
        /// The address of ours to start from, if one was asked for.
        local: Option<IpAddr>,
        /// What the system said.
        #[source]
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

fn from_text(local: &Option<IpAddr>) -> String {
    local.map_or_else(String::new, |local| format!(" from {local}"))
}

/// The way to a peer, as the kernel's routes have it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The address of ours that packets come from.
    pub local: IpAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Longest IP packet in bytes: that of the interface, or less where a router has said so.
    pub ip_mtu: u32,
    /// The largest RoCE path MTU that fits.
    pub path_mtu: PathMtu,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {}: MTU {}, RoCE path MTU {}",
            self.local,
            self.remote.ip(),
            self.ip_mtu,
            self.path_mtu.bytes()
        )
    }
}

/// Asks the kernel for the way to `remote`, from `local` if given. Sends nothing.
///
/// # Errors
/// [`PathError`].
pub fn probe_path(local: Option<IpAddr>, remote: SocketAddr) -> Result<Path, PathError> {
    let (local, ip_mtu) = ask(local, remote).map_err(|source| PathError::Unreachable {
        remote,
        local,
        source,
    })?;
    let fitting = PathMtu::for_interface_mtu(ip_mtu as usize, remote.is_ipv6());
    Ok(Path {
        local,
        remote,
        ip_mtu,
        path_mtu: fitting.ok_or(PathError::TooSmall { remote, ip_mtu })?,
    })
}

/// The MTU of the way to `remote` in bytes, IP header included.
pub(super) fn ip_mtu(local: Option<IpAddr>, remote: SocketAddr) -> io::Result<u32> {
    ask(local, remote).map(|(_, mtu)| mtu)
}

/// Connecting a UDP socket looks the route up and sends nothing.
fn ask(local: Option<IpAddr>, remote: SocketAddr) -> io::Result<(IpAddr, u32)> {
    let (family, any, level, name) = match remote {
        SocketAddr::V4(_) => (
            AddressFamily::INET,
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            libc::IPPROTO_IP,
            libc::IP_MTU,
        ),
        SocketAddr::V6(_) => (
            AddressFamily::INET6,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU,
        ),
    };
    let flags = SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let mut from = SocketAddr::new(local.unwrap_or(any), 0);
    if let (SocketAddr::V6(from), SocketAddr::V6(to)) = (&mut from, remote) {
        from.set_scope_id(to.scope_id());
    }
    rustix::net::bind(&fd, &from)?;
    rustix::net::connect(&fd, &remote)?;
    let from = SocketAddr::try_from(rustix::net::getsockname(&fd)?).map_err(io::Error::from)?;
    let mtu = sys::option(fd.as_fd(), level, name)?;
    let mtu = u32::try_from(mtu).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((from.ip(), mtu))
}

/// The address that `socket` sends from to reach `remote`.
pub(super) fn source(socket: &UdpSocket, remote: SocketAddr) -> io::Result<IpAddr> {
    if socket.is_wildcard() {
        return ask(None, remote).map(|(local, _)| local);
    }
    Ok(socket.local().ip())
}
