//! The sockets of one device.
use super::{BindError, LocalAddress, Scope, SocketOptions, UdpSocket, local_addresses};
use std::net::{IpAddr, SocketAddr};

/// One socket for each address of a device.
#[derive(Debug)]
pub struct SocketSet {
    sockets: Vec<UdpSocket>,
}

impl SocketSet {
    /// Opens a socket for each of `addresses`.
    ///
    /// # Errors
    /// The first [`BindError`]; nothing stays open then.
    pub fn open(addresses: &[SocketAddr], options: &SocketOptions) -> Result<SocketSet, BindError> {
        if addresses.is_empty() {
            return Err(BindError::NoAddress);
        }
        let sockets = addresses.iter().map(|a| UdpSocket::bind(*a, options));
        Ok(SocketSet {
            sockets: sockets.collect::<Result<_, _>>()?,
        })
    }

    /// Opens a socket at `port` for each address of the network interface `interface`, the most
    /// useful first; of all interfaces if `None`. Loopback addresses count where they are asked for
    /// by name or nothing else is there; link-local ones likewise.
    ///
    /// # Errors
    /// [`BindError::NoAddress`] if there is none, else as [`SocketSet::open`].
    pub fn open_interface(
        interface: Option<&str>,
        port: u16,
        options: &SocketOptions,
    ) -> Result<SocketSet, BindError> {
        let all = local_addresses().map_err(|source| BindError::Os {
            address: SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), port),
            call: "getifaddrs",
            source,
        })?;
        let chosen = choose(&all, interface);
        let addresses: Vec<_> = chosen.iter().map(|a| a.with_port(port)).collect();
        SocketSet::open(&addresses, options)
    }

    /// The sockets, in the order in which they were asked for.
    pub fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    /// The socket from which a packet with the source address `local` is sent.
    pub fn for_local(&self, local: IpAddr) -> Option<&UdpSocket> {
        let exact = self.sockets.iter().find(|s| s.local().ip() == local);
        exact.or_else(|| {
            let same_kind = |s: &&UdpSocket| s.local().is_ipv4() == local.is_ipv4();
            self.sockets
                .iter()
                .filter(|s| s.is_wildcard())
                .find(same_kind)
        })
    }
}

/// The addresses to serve: of the widest scope there is, down to unique local; a narrower one only
/// if nothing else is there.
fn choose<'a>(all: &'a [LocalAddress], interface: Option<&str>) -> Vec<&'a LocalAddress> {
    let wanted = |a: &&LocalAddress| interface.is_none_or(|name| a.interface == name);
    let all: Vec<_> = all.iter().filter(wanted).collect();
    for limit in [Scope::UniqueLocal, Scope::LinkLocal, Scope::Loopback] {
        let reach: Vec<_> = all.iter().copied().filter(|a| a.scope <= limit).collect();
        if !reach.is_empty() {
            return reach;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(interface: &str, address: &str) -> LocalAddress {
        let address: IpAddr = address.parse().unwrap();
        LocalAddress {
            address,
            scope: Scope::of(address),
            interface: interface.into(),
            scope_id: 0,
            mtu: 1500,
        }
    }

    #[test]
    fn narrow_addresses_serve_only_where_no_wider_one_is() {
        let all = [
            at("a", "10.0.0.1"),
            at("a", "fe80::1"),
            at("b", "fe80::2"),
            at("lo", "::1"),
        ];
        let names = |interface| -> Vec<String> {
            let chosen = choose(&all, interface);
            chosen.iter().map(|a| a.address.to_string()).collect()
        };
        assert_eq!(names(None), ["10.0.0.1"]);
        assert_eq!(names(Some("b")), ["fe80::2"]);
        assert_eq!(names(Some("lo")), ["::1"]);
        assert!(names(Some("c")).is_empty());
    }
}
