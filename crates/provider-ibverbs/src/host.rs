//! The addresses of this host, as far as this network namespace goes.
use std::{io, net::IpAddr};

/// An address of an interface of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostAddress {
    pub(crate) ip: IpAddr,
    pub(crate) netdev: String,
}

/// All addresses.
pub(crate) fn addresses() -> io::Result<Vec<HostAddress>> {
    let all = if_addrs::get_if_addrs()?;
    Ok(all
        .into_iter()
        .map(|interface| HostAddress {
            ip: interface.ip(),
            netdev: interface.name,
        })
        .collect())
}
