//! The addresses of this host in this network namespace.
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostAddress {
    pub(crate) ip: IpAddr,
    pub(crate) netdev: String,
}

pub(crate) fn interface_name(index: u32) -> Option<String> {
    if index == 0 {
        return None;
    }
    // Any socket will do to ask.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
    rustix::net::netdevice::index_to_name(socket.ok()?, index).ok()
}

pub(crate) fn addresses() -> io::Result<Vec<HostAddress>> {
    let all = if_addrs::get_if_addrs()?;
    Ok(all
        .into_iter()
        .map(|interface| HostAddress { ip: interface.ip(), netdev: interface.name })
        .collect())
}
