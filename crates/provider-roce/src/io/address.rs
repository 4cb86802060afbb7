//! The addresses of this host.
use super::sys;
use if_addrs::Interface;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// How far an address reaches. The order is the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everywhere that routes lead; IPv4 private networks count as this too.
    Global,
    /// IPv6 unique local addresses, `fc00::/7`.
    UniqueLocal,
    /// One link only: needs the interface besides the address.
    LinkLocal,
    /// This host only.
    Loopback,
}

impl Scope {
    /// Of this address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            _ if address.is_loopback() => Self::Loopback,
            IpAddr::V4(v4) if v4.is_link_local() => Self::LinkLocal,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Self::LinkLocal,
            IpAddr::V6(v6) if v6.is_unique_local() => Self::UniqueLocal,
            IpAddr::V4(_) | IpAddr::V6(_) => Self::Global,
        }
    }
}

/// An address of this host (of the network namespace of the calling thread).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub address: IpAddr,
    /// How far it reaches.
    pub scope: Scope,
    /// Name of its interface.
    pub interface: String,
    /// Number of its interface where the address alone is ambiguous (IPv6 link-local), else 0.
    pub scope_id: u32,
    /// MTU of its interface in bytes, IP header included.
    pub mtu: u32,
}

impl LocalAddress {
    /// Returns the address with a port, and with its interface where that is needed.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        match SocketAddr::new(self.address, port) {
            SocketAddr::V6(mut v6) => {
                v6.set_scope_id(self.scope_id);
                SocketAddr::V6(v6)
            }
            v4 @ SocketAddr::V4(_) => v4,
        }
    }

    /// Global before local; within a scope IPv6 first, whose packets have no identification that
    /// the ICRC would have to guess.
    fn rank(&self) -> (Scope, bool) {
        (self.scope, self.address.is_ipv4())
    }
}

/// Returns all addresses of interfaces that are up, the most useful first: by scope, IPv6 before
/// IPv4, else in the kernel's order.
///
/// # Errors
/// When the system does not report them.
pub fn local_addresses() -> io::Result<Vec<LocalAddress>> {
    // Any socket will do to ask for an MTU.
    let flags = SocketFlags::CLOEXEC;
    let probe = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    let mut found = Vec::new();
    for interface in if_addrs::get_if_addrs()? {
        // An interface that vanished meanwhile no longer has an address.
        if let Ok(Some(mtu)) = sys::mtu_if_up(probe.as_fd(), &interface.name) {
            found.push(local_address(&interface, mtu));
        }
    }
    found.sort_by_key(LocalAddress::rank);
    Ok(found)
}

fn local_address(interface: &Interface, mtu: u32) -> LocalAddress {
    let address = interface.ip();
    let scope = Scope::of(address);
    let is_ambiguous = scope == Scope::LinkLocal && address.is_ipv6();
    LocalAddress {
        address,
        scope,
        interface: interface.name.clone(),
        scope_id: interface.index.filter(|_| is_ambiguous).unwrap_or(0),
        mtu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_reach_further_come_first() {
        let at = |text: &str| {
            let address = text.parse().unwrap();
            let (interface, scope) = ("if".into(), Scope::of(address));
            LocalAddress { address, scope, interface, scope_id: 0, mtu: 1500 }
        };
        let mut list: Vec<_> =
            ["127.0.0.1", "fe80::1", "10.0.0.1", "::1", "fd00::1", "2001:db8::1"].map(at).into();
        list.sort_by_key(LocalAddress::rank);
        let order: Vec<String> = list.iter().map(|a| a.address.to_string()).collect();
        assert_eq!(order, ["2001:db8::1", "10.0.0.1", "fd00::1", "fe80::1", "::1", "127.0.0.1"]);
    }

    #[test]
    fn loopback_is_found_with_its_mtu() {
        let all = local_addresses().unwrap();
        let loopback = all.iter().find(|a| a.scope == Scope::Loopback).unwrap();
        assert_eq!(loopback.interface, "lo");
        assert!(loopback.mtu >= 1500, "{loopback:?}");
    }
}
