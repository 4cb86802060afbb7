//! Sockets for the datagrams between a source and its controller (docs/spec/admission.md).
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// DSCP CS6: what networks are run by goes first where queues know classes.
const CONTROL_TOS: u8 = 48 << 2;

/// Returns a socket for datagrams to an address, and from there, that does not block.
///
/// # Errors
/// The system gives none, or knows no way there.
pub fn socket_to(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match to {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.set_nonblocking(true)?;
    go_first(&socket, to);
    socket.connect(to)?;
    Ok(socket)
}

/// Lets what leaves a socket go before other traffic, where the system and the network allow that; its address is of the
/// family of this one.
pub fn go_first(socket: &UdpSocket, address: SocketAddr) {
    let _ = match address {
        SocketAddr::V4(_) => rustix::net::sockopt::set_ip_tos(socket, CONTROL_TOS),
        SocketAddr::V6(_) => rustix::net::sockopt::set_ipv6_tclass(socket, CONTROL_TOS.into()),
    };
}
