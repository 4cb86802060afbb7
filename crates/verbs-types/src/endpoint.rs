//! Addresses: the GID of a port, the endpoint of a queue pair, the end of a network path.
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Address of a device port (IBTA 4.1.1). Sixteen bytes, in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, derive_more::Debug)]
#[debug("Gid({self})")]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the GID of a RoCEv2 port with this address: IPv4 as `::ffff:a.b.c.d` (IBTA annex
    /// 17).
    pub fn from_ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// Returns the address of a RoCEv2 port, the reverse of [`Gid::from_ip`].
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl Gid {
    /// Returns the first bytes of a GID that lets in whoever knows it, for logs and errors: enough to tell
    /// two apart.
    pub fn redacted(self) -> String {
        let [first, second, ..] = self.0;
        format!("{first:02x}{second:02x}...")
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text that is not a [`Gid`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GID: 32 hexadecimal digits are needed")]
pub struct GidParseError(pub String);

impl FromStr for Gid {
    type Err = GidParseError;

    fn from_str(text: &str) -> Result<Self, GidParseError> {
        let wrong = || GidParseError(text.chars().take(64).collect());
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        Ok(Self(u128::from_str_radix(text, 16).map_err(|_| wrong())?.to_be_bytes()))
    }
}

/// What a peer must know to reach a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The device port.
    pub gid: Gid,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First packet sequence number that this side sends, 24 bits.
    pub psn: u32,
    /// What this side accepts from the network; `None` where the provider has no packets.
    pub net: Option<NetEnd>,
}

/// One end of a path over a network. Each side sends its own; what both support is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetEnd {
    /// UDP port that it listens on. RNICs use only 4791.
    pub udp_port: u16,
    /// Largest path MTU that it accepts, in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// Its extensions of the standard; 0 for an RNIC. Bits 0 to 7 are one each, such as
    /// [`SELECTIVE_REPEAT`](NetEnd::SELECTIVE_REPEAT), 8 to 12 are [`NetEnd::window_bytes`], 16 to 31
    /// [`NetEnd::source_port`].
    pub extensions: u32,
    /// The key of the packets that this queue pair sends, if they are authenticated. Told over an encrypted
    /// session only, and in no text.
    pub key: Option<PacketKey>,
}

/// A secret of the packets of one queue pair, drawn by chance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("PacketKey(..)")]
pub struct PacketKey(pub [u8; 16]);

impl NetEnd {
    /// The only UDP port that an RNIC uses (IBTA annex 17).
    pub const RNIC_UDP_PORT: u16 = 4791;
    /// Bit of [`extensions`](NetEnd::extensions): only lost packets are retransmitted.
    pub const SELECTIVE_REPEAT: u32 = 1;
    /// Bit of [`extensions`](NetEnd::extensions): a NAK that ends a connection is repeated when it is
    /// challenged, and believed only then.
    pub const CHALLENGES: u32 = 1 << 1;
    /// Bit of [`extensions`](NetEnd::extensions): packets are authenticated, and others are dropped.
    pub const AUTHENTICATED: u32 = 1 << 2;
    const WINDOW_SHIFT: u32 = 8;
    const WINDOW_MASK: u32 = 0x1f;
    const SOURCE_PORT_SHIFT: u32 = 16;

    /// Returns the end of an RNIC with this path MTU in bytes.
    pub fn of_rnic(path_mtu: u32) -> Self {
        Self { udp_port: Self::RNIC_UDP_PORT, path_mtu, extensions: 0, key: None }
    }

    /// Returns this end with the UDP port that all its packets come from.
    #[must_use]
    pub fn with_source_port(self, port: u16) -> Self {
        let others = self.extensions & ((1 << Self::SOURCE_PORT_SHIFT) - 1);
        Self { extensions: others | u32::from(port) << Self::SOURCE_PORT_SHIFT, ..self }
    }

    /// Returns the UDP port that all its packets come from; `None` if they may come from any.
    pub fn source_port(&self) -> Option<u16> {
        let port = (self.extensions >> Self::SOURCE_PORT_SHIFT) as u16;
        (port != 0).then_some(port)
    }

    /// Returns this end with the most payload that it has in flight, rounded down to a power of two.
    #[must_use]
    pub fn with_window_bytes(self, bytes: u64) -> Self {
        let others = self.extensions & !(Self::WINDOW_MASK << Self::WINDOW_SHIFT);
        let power = bytes.max(1).ilog2().min(Self::WINDOW_MASK);
        Self { extensions: others | power << Self::WINDOW_SHIFT, ..self }
    }

    /// Returns the most payload that it has in flight, in bytes; `None` if it does not say.
    pub fn window_bytes(&self) -> Option<u64> {
        let power = self.extensions >> Self::WINDOW_SHIFT & Self::WINDOW_MASK;
        (power != 0).then_some(1 << power)
    }
}

impl fmt::Display for Endpoint {
    /// `GID/QPN/PSN`, and `/PORT/MTU/EXTENSIONS` where there is a network.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.gid, self.qpn, self.psn)?;
        match self.net {
            None => Ok(()),
            Some(net) => write!(f, "/{}/{}/{}", net.udp_port, net.path_mtu, net.extensions),
        }
    }
}

/// Text that is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an endpoint: GID/QPN/PSN or GID/QPN/PSN/PORT/MTU/EXTENSIONS is needed")]
pub struct EndpointParseError(pub String);

impl FromStr for Endpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, EndpointParseError> {
        parse_endpoint(text).ok_or_else(|| EndpointParseError(text.chars().take(128).collect()))
    }
}

fn parse_endpoint(text: &str) -> Option<Endpoint> {
    let fields: Vec<&str> = text.split('/').collect();
    let net = match fields[..] {
        [_, _, _] => None,
        [_, _, _, port, mtu, extensions] => Some(NetEnd {
            udp_port: port.parse().ok()?,
            path_mtu: mtu.parse().ok()?,
            extensions: extensions.parse().ok()?,
            key: None,
        }),
        _ => return None,
    };
    Some(Endpoint {
        gid: fields[0].parse().ok()?,
        qpn: fields[1].parse().ok()?,
        psn: fields[2].parse().ok()?,
        net,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redacted_gid_shows_too_little_to_be_used() {
        let shown = Gid([0xab; 16]).redacted();
        assert_eq!(shown, "abab...");
        assert!(shown.parse::<Gid>().is_err());
    }

    #[test]
    fn gid_reads_back_what_it_prints() {
        let gid = Gid([0xfe, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(gid.to_string().parse(), Ok(gid));
        for bad in
            ["", "fe80", "+e800001020304050607080910111213", "zz800001020304050607080910111213"]
        {
            assert!(bad.parse::<Gid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gid_is_the_address_of_its_port() {
        for text in ["10.77.0.2", "10.99.0.1", "fd00::2", "2001:db8::2", "::1", "127.0.0.1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(Gid::from_ip(ip).ip(), ip);
        }
        for (v4, text) in [
            ([10, 77, 0, 2], "00000000000000000000ffff0a4d0002"),
            ([10, 99, 0, 1], "00000000000000000000ffff0a630001"),
        ] {
            assert_eq!(Gid::from_ip(IpAddr::from(v4)).to_string(), text);
        }
    }

    #[test]
    fn source_port_and_window_share_the_extensions_with_the_bits() {
        let extensions = NetEnd::CHALLENGES;
        let plain = NetEnd { extensions, ..NetEnd::of_rnic(1024) };
        assert_eq!((plain.source_port(), plain.window_bytes()), (None, None));
        let end = plain.with_source_port(0xc123).with_window_bytes((4 << 20) + 1);
        assert_eq!((end.source_port(), end.window_bytes()), (Some(0xc123), Some(4 << 20)));
        assert_eq!(end.extensions, 0xc123_0000 | 22 << 8 | NetEnd::CHALLENGES);
        let other = end.with_source_port(0xffff).with_window_bytes(u64::MAX);
        assert_eq!((other.source_port(), other.window_bytes()), (Some(0xffff), Some(1 << 31)));
    }

    #[test]
    fn a_key_is_in_no_text() {
        let net = NetEnd { key: Some(PacketKey([0xab; 16])), ..NetEnd::of_rnic(1024) };
        let end = Endpoint { gid: Gid::default(), qpn: 1, psn: 2, net: Some(net) };
        for text in [end.to_string(), format!("{end:?}")] {
            assert!(!text.contains("ab") && !text.contains("171"), "{text}");
        }
    }

    #[test]
    fn an_endpoint_reads_back_what_it_prints() {
        let gid = Gid([7; 16]);
        let net = NetEnd { extensions: 1, ..NetEnd::of_rnic(4096) };
        for net in [None, Some(net)] {
            let (qpn, psn) = (17, 0x00ff_ffff);
            let end = Endpoint { gid, qpn, psn, net };
            assert_eq!(end.to_string().parse(), Ok(end));
        }
        for bad in ["", "1/2", "07070707070707070707070707070707/1", "a/1/2/3", "////"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }
}
