//! Names of devices: an address, an address with a port, or a network interface.
use crate::io::{LocalAddress, local_addresses};
use catchment_verbs::VerbsError;
use std::net::{IpAddr, SocketAddr};

/// Addresses of this host that a device can have.
///
/// # Errors
/// When the system does not report them.
pub(crate) fn usable() -> Result<Vec<LocalAddress>, VerbsError> {
    local_addresses().map_err(|error| VerbsError::os("the addresses of this host", error))
}

/// Returns the address and port of a name; for an interface, its address of the widest scope.
///
/// # Errors
/// [`VerbsError::NoDevice`] with the names that exist.
pub(crate) fn resolve(name: &str, default_port: u16) -> Result<SocketAddr, VerbsError> {
    let all = usable()?;
    let asked = name
        .parse::<SocketAddr>()
        .or_else(|_| bare(name).map(|address| SocketAddr::new(address, default_port)));
    if let Ok(asked) = asked {
        return Ok(with_scope(asked, &all));
    }
    let (interface, port) = interface(name, default_port);
    let found = all.iter().find(|at| at.interface == interface);
    match found {
        Some(found) => Ok(found.with_port(port)),
        None => {
            Err(VerbsError::NoDevice { name: name.chars().take(64).collect(), known: known(&all) })
        }
    }
}

/// Returns the names of these addresses, those of interfaces too.
fn known(all: &[LocalAddress]) -> Vec<String> {
    let mut names: Vec<String> = all.iter().map(|at| at.address.to_string()).collect();
    names.extend(all.iter().map(|at| at.interface.clone()));
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// An address without a port, an IPv6 one also in brackets.
fn bare(name: &str) -> Result<IpAddr, std::net::AddrParseError> {
    name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name).parse()
}

/// `eth0` or `eth0:4791`.
fn interface(name: &str, default_port: u16) -> (&str, u16) {
    let parts = name.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    parts.unwrap_or((name, default_port))
}

/// Adds the interface that a link-local address needs.
fn with_scope(asked: SocketAddr, all: &[LocalAddress]) -> SocketAddr {
    let known = all.iter().find(|at| at.address == asked.ip());
    known.map_or(asked, |known| known.with_port(asked.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_addresses_ports_and_interfaces() {
        for (name, address) in [
            ("127.0.0.1", "127.0.0.1:4791"),
            ("127.0.0.77", "127.0.0.77:4791"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("::1", "[::1]:4791"),
            ("[::1]", "[::1]:4791"),
            ("[::1]:17", "[::1]:17"),
        ] {
            assert_eq!(resolve(name, 4791).unwrap().to_string(), address, "{name}");
        }
        assert!(resolve("lo", 4791).unwrap().ip().is_loopback());
        assert_eq!(resolve("lo:5", 4791).unwrap().port(), 5);
        let error = resolve("eth77", 4791).unwrap_err().to_string();
        assert!(error.contains("eth77") && error.contains("127.0.0.1"), "{error}");
    }
}
