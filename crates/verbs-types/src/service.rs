//! Transport services of queue pairs, and the addressing of datagrams.
use crate::{Endpoint, Gid, NetEnd};
use bitflags::bitflags;
use std::fmt;

/// Transport service of a queue pair (IBTA 9.6 to 9.8; `ibv_qp_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, derive_more::Display)]
pub enum Service {
    /// Reliable connection: everything, in order, once, or an error.
    #[default]
    #[display("RC")]
    Rc,
    /// Unreliable connection: SEND and WRITE, with or without immediate data. A message that lacks
    /// a packet, or finds no receive, is dropped without notice; parts of a WRITE may be there.
    #[display("UC")]
    Uc,
    /// Unreliable datagram: SEND, with or without immediate data, of at most one path MTU, to
    /// any queue pair. Lost datagrams are not retransmitted.
    #[display("UD")]
    Ud,
}

bitflags! {
    /// A set of services.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Services: u8 {
        /// [`Service::Rc`].
        const RC = 1;
        /// [`Service::Uc`].
        const UC = 1 << 1;
        /// [`Service::Ud`].
        const UD = 1 << 2;
    }
}

impl Services {
    /// Returns whether the service is one of them.
    pub fn has(self, service: Service) -> bool {
        self.contains(service.into())
    }
}

impl From<Service> for Services {
    fn from(service: Service) -> Self {
        match service {
            Service::Rc => Self::RC,
            Service::Uc => Self::UC,
            Service::Ud => Self::UD,
        }
    }
}

impl fmt::Display for Services {
    /// `RC, UC, UD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [Service::Rc, Service::Uc, Service::Ud];
        let mut before = "";
        for service in all.into_iter().filter(|service| self.has(*service)) {
            write!(f, "{before}{service}")?;
            before = ", ";
        }
        Ok(())
    }
}

/// The largest Q_Key of a program. A queue pair accepts only datagrams that carry its Q_Key; values
/// with the highest bit belong to the system (IBTA 3.5.3).
pub const MAX_QKEY: u32 = 0x7fff_ffff;

/// Bytes that each receive of a UD queue pair begins with: the network header of the datagram, the
/// global route header of InfiniBand. Completions count them.
///
/// Over IPv6 they are the IPv6 header; over IPv4 the header is in the last 20 bytes, and the first
/// 20 are undefined (IBTA annex 17, A17.4.5.2). [`source_gid`] reads them.
pub const GRH_BYTES: usize = 40;

/// The address of a port, for datagrams: the attributes of an address handle (`ibv_ah_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortAddr {
    /// The device port.
    pub gid: Gid,
    /// What it accepts from the network; `None` is an RNIC's with the largest path MTU.
    pub net: Option<NetEnd>,
}

impl From<&Endpoint> for PortAddr {
    fn from(end: &Endpoint) -> Self {
        Self { gid: end.gid, net: end.net }
    }
}

/// The destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The path: `Ah::handle` of an address handle of the same protection domain.
    pub ah: u32,
    /// The queue pair there, 24 bits.
    pub qpn: u32,
    /// Its Q_Key, at most [`MAX_QKEY`]. A datagram with a different one is dropped.
    pub qkey: u32,
}

/// Returns the port that a received datagram came from, read from the [`GRH_BYTES`] at the
/// beginning of its receive; `None` if they are not an IP header.
///
/// The header has no UDP ports: an answer to a peer on a port other than
/// [`NetEnd::RNIC_UDP_PORT`] needs a [`PortAddr`] that the peer gave.
pub fn source_gid(grh: &[u8; GRH_BYTES]) -> Option<Gid> {
    const V4_AT: usize = 20;
    let version = |first: u8| first >> 4;
    if version(grh[0]) == 6 {
        return grh[8..24].first_chunk().map(|gid| Gid(*gid));
    }
    if version(grh[V4_AT]) != 4 {
        return None;
    }
    let source = grh[V4_AT + 12..].first_chunk::<4>()?;
    Some(Gid::from_ip((*source).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_its_services() {
        assert_eq!(Services::all().to_string(), "RC, UC, UD");
        assert_eq!((Services::RC | Services::UD).to_string(), "RC, UD");
        assert_eq!(Services::default().to_string(), "");
        assert!((Services::RC | Services::UD).has(Service::Ud));
        assert!(!Services::RC.has(Service::Uc));
    }

    #[test]
    fn the_sender_of_a_datagram_is_read_from_its_header() {
        let mut grh = [0; GRH_BYTES];
        assert_eq!(source_gid(&grh), None);
        grh[20] = 0x45;
        grh[32..36].copy_from_slice(&[10, 0, 0, 7]);
        grh[36..40].copy_from_slice(&[10, 0, 0, 8]);
        assert_eq!(source_gid(&grh).unwrap().ip(), "10.0.0.7".parse::<std::net::IpAddr>().unwrap());
        let v6: std::net::Ipv6Addr = "fd00::7".parse().unwrap();
        grh[0] = 0x60;
        grh[8..24].copy_from_slice(&v6.octets());
        assert_eq!(source_gid(&grh), Some(Gid::from_ip(v6.into())));
    }
}
