//! Sockets for the datagrams between a source and its controller (docs/spec/admission.md), and the threads that have them.
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;

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

/// Room for datagrams that come together: some thousands.
const RECEIVE_BYTES: usize = 4 << 20;

/// Lets a socket hold as many datagrams as come together from many ends: some thousands for who may ask for more than
/// `net.core.rmem_max`, else what that allows.
pub fn hold_bursts(socket: &UdpSocket) {
    use rustix::net::sockopt::{
        set_socket_recv_buffer_size as ask, set_socket_recv_buffer_size_force as force,
    };
    let _ = force(socket, RECEIVE_BYTES).or_else(|_| ask(socket, RECEIVE_BYTES));
}

/// Lets timers of the calling thread end when they are due; by default the system may end them up to 50 µs later, so
/// that timers share a wake-up (`PR_SET_TIMERSLACK`). A window that is begun late is lost by as much.
pub fn wake_on_time() {
    // Fails in no system that knows it; without it the thread is late as it was.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
