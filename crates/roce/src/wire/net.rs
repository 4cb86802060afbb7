//! IP and UDP headers, as far as RoCEv2 defines them (IBTA annex A17, A17.3.1, A17.3.2).
//!
//! No options, no extension headers, no fragments. The UDP checksum may be zero, over IPv6 too.
use std::net::{Ipv4Addr, Ipv6Addr};
use thiserror::Error;

/// The destination UDP port of all packets, also of answers.
pub const ROCE_PORT: u16 = 4791;

/// Length of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Length of an IPv6 header without extensions.
pub const IPV6_BYTES: usize = 40;
/// Length of a UDP header.
pub const UDP_BYTES: usize = 8;
/// Length of the longest IP and UDP headers.
pub const MAX_NET_BYTES: usize = IPV6_BYTES + UDP_BYTES;

const PROTOCOL_UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
const HOP_LIMIT: u8 = 64;

/// Addresses and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetHeader {
    /// Network layer.
    pub ip: Ip,
    /// UDP source port: the same for all packets of a queue pair. See [`source_port`].
    pub src_port: u16,
    /// UDP destination port: [`ROCE_PORT`].
    pub dst_port: u16,
}

/// Network layer of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ip {
    /// IPv4.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
        /// Identification, and whether the packet may be fragmented: the ICRC covers them.
        id: Ipv4Id,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
    },
}

/// The fields of an IPv4 header that a UDP socket hides from receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Id {
    /// Identification.
    pub id: u16,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
}

impl Ipv4Id {
    /// What an unconnected Linux socket with `IP_PMTUDISC_DO` sends: 0, not to be fragmented.
    pub const UNFRAGMENTED: Self = Self::new(0);

    /// Creates an identification of a packet that is not to be fragmented.
    pub const fn new(id: u16) -> Self {
        Self { id, dont_fragment: true }
    }

    /// Returns the four bytes as they stand in the header.
    pub const fn to_bytes(self) -> [u8; 4] {
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        ((self.id as u32) << 16 | flags as u32).to_be_bytes()
    }

    /// Decodes the four bytes; `None` for a fragment, or with the reserved flag set.
    pub const fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        let [i0, i1, f0, f1] = bytes;
        let flags = u16::from_be_bytes([f0, f1]);
        if flags & !DONT_FRAGMENT != 0 {
            return None;
        }
        Some(Self { id: u16::from_be_bytes([i0, i1]), dont_fragment: flags != 0 })
    }
}

impl Default for Ipv4Id {
    fn default() -> Self {
        Self::UNFRAGMENTED
    }
}

/// Why bytes are not an IP packet that may carry RoCEv2.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetError {
    /// Shorter than its headers say.
    #[error("{bytes} bytes of IP packet, {needed} needed: it was truncated")]
    TooShort {
        /// Bytes that there are.
        bytes: usize,
        /// Bytes that there should be.
        needed: usize,
    },
    /// Neither IPv4 without options nor IPv6: the first byte.
    #[error("the IP packet begins with {0:#04x}; only 0x45 and 0x6. carry RoCEv2")]
    Version(u8),
    /// Not UDP directly after the IP header: the protocol seen.
    #[error("IP protocol {0} instead of 17: not UDP")]
    Protocol(u8),
    /// A fragment: identification, flags and fragment offset.
    #[error("flags and fragment offset are {0:02x?}: fragments are not supported")]
    Fragment([u8; 4]),
    /// The length fields of IP and UDP contradict each other.
    #[error("{udp} bytes of UDP in {ip} bytes of IP payload: the lengths contradict each other")]
    Length {
        /// Length in the UDP header.
        udp: usize,
        /// Length in the IP header, without the IP header.
        ip: usize,
    },
}

impl NetHeader {
    /// Creates a header to [`ROCE_PORT`] over IPv4, with the identification of an unconnected
    /// socket.
    pub const fn v4(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16) -> Self {
        Self { ip: Ip::V4 { src, dst, id: Ipv4Id::UNFRAGMENTED }, src_port, dst_port: ROCE_PORT }
    }

    /// Creates a header to [`ROCE_PORT`] over IPv6.
    pub const fn v6(src: Ipv6Addr, dst: Ipv6Addr, src_port: u16) -> Self {
        Self { ip: Ip::V6 { src, dst }, src_port, dst_port: ROCE_PORT }
    }

    /// Returns the same header with another identification; over IPv6 the same.
    #[must_use]
    pub const fn with_ipv4_id(mut self, new: Ipv4Id) -> Self {
        if let Ip::V4 { id, .. } = &mut self.ip {
            *id = new;
        }
        self
    }

    /// Returns the length of the IP and UDP headers in bytes.
    pub const fn bytes(&self) -> usize {
        UDP_BYTES
            + match self.ip {
                Ip::V4 { .. } => IPV4_BYTES,
                Ip::V6 { .. } => IPV6_BYTES,
            }
    }

    /// Writes IP and UDP headers for a UDP payload of this length to the beginning of `out`, and
    /// returns how long they are. The UDP checksum is 0.
    ///
    /// A payload longer than IP can carry results in truncated length fields.
    pub fn encode(&self, udp_payload_bytes: usize, out: &mut [u8; MAX_NET_BYTES]) -> usize {
        let bytes = self.write(udp_payload_bytes, Free::ZERO, out);
        if let Ip::V4 { .. } = self.ip {
            let checksum = ipv4_checksum(&out[..IPV4_BYTES]);
            out[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        bytes
    }

    /// Returns the first bytes of a UD receive: the IPv6 header, or 20 undefined bytes and the IPv4
    /// header (A17.4.5.2).
    pub fn grh(&self, udp_payload_bytes: usize) -> [u8; crate::GRH_BYTES] {
        let mut headers = [0; MAX_NET_BYTES];
        self.encode(udp_payload_bytes, &mut headers);
        let ip_bytes = self.bytes() - UDP_BYTES;
        let mut grh = [0; crate::GRH_BYTES];
        grh[crate::GRH_BYTES - ip_bytes..].copy_from_slice(&headers[..ip_bytes]);
        grh
    }

    /// As [`NetHeader::encode`], with ones in the variant fields: what the ICRC covers.
    pub(super) fn encode_masked(
        &self,
        udp_payload_bytes: usize,
        out: &mut [u8; MAX_NET_BYTES],
    ) -> usize {
        self.write(udp_payload_bytes, Free::MASKED, out)
    }

    fn write(&self, udp_payload_bytes: usize, free: Free, out: &mut [u8; MAX_NET_BYTES]) -> usize {
        let udp_bytes = UDP_BYTES + udp_payload_bytes;
        let ip_bytes = match self.ip {
            Ip::V4 { src, dst, id } => {
                let ip = ipv4(src, dst, id, IPV4_BYTES + udp_bytes, free);
                out[..IPV4_BYTES].copy_from_slice(&ip);
                IPV4_BYTES
            }
            Ip::V6 { src, dst } => {
                out[..IPV6_BYTES].copy_from_slice(&ipv6(src, dst, udp_bytes, free));
                IPV6_BYTES
            }
        };
        let bytes = ip_bytes + UDP_BYTES;
        let fields = [self.src_port, self.dst_port, udp_bytes as u16, free.udp_checksum];
        for (to, field) in out[ip_bytes..bytes].as_chunks_mut().0.iter_mut().zip(fields) {
            *to = field.to_be_bytes();
        }
        bytes
    }

    /// Decodes IP and UDP headers, and returns them with the payload of the datagram.
    ///
    /// Checksums of IPv4 and UDP are ignored: the ICRC is stronger, and senders set that of UDP to
    /// 0.
    ///
    /// # Errors
    /// When the bytes are not a whole UDP datagram in one IP packet.
    pub fn decode(packet: &[u8]) -> Result<(Self, &[u8]), NetError> {
        match packet.first().copied() {
            Some(0x45) => decode_ipv4(packet),
            Some(byte) if byte >> 4 == 6 => decode_ipv6(packet),
            Some(byte) => Err(NetError::Version(byte)),
            None => Err(NetError::TooShort { bytes: 0, needed: IPV4_BYTES }),
        }
    }
}

/// Variant fields, which routers may change and the ICRC does not cover.
#[derive(Clone, Copy)]
struct Free {
    tos: u8,
    ttl: u8,
    ipv4_checksum: u16,
    /// Version, traffic class and flow label of IPv6.
    ipv6_word: u32,
    udp_checksum: u16,
}

impl Free {
    const ZERO: Self =
        Self { tos: 0, ttl: HOP_LIMIT, ipv4_checksum: 0, ipv6_word: 0x6000_0000, udp_checksum: 0 };
    const MASKED: Self = Self {
        tos: 0xff,
        ttl: 0xff,
        ipv4_checksum: 0xffff,
        ipv6_word: 0x6fff_ffff,
        udp_checksum: 0xffff,
    };
}

fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, id: Ipv4Id, bytes: usize, free: Free) -> [u8; IPV4_BYTES] {
    let mut ip = [0; IPV4_BYTES];
    ip[0] = 0x45;
    ip[1] = free.tos;
    ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    ip[4..8].copy_from_slice(&id.to_bytes());
    ip[8] = free.ttl;
    ip[9] = PROTOCOL_UDP;
    ip[10..12].copy_from_slice(&free.ipv4_checksum.to_be_bytes());
    ip[12..16].copy_from_slice(&src.octets());
    ip[16..].copy_from_slice(&dst.octets());
    ip
}

fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, bytes: usize, free: Free) -> [u8; IPV6_BYTES] {
    let mut ip = [0; IPV6_BYTES];
    ip[..4].copy_from_slice(&free.ipv6_word.to_be_bytes());
    ip[4..6].copy_from_slice(&(bytes as u16).to_be_bytes());
    ip[6] = PROTOCOL_UDP;
    ip[7] = free.ttl;
    ip[8..24].copy_from_slice(&src.octets());
    ip[24..].copy_from_slice(&dst.octets());
    ip
}

fn ipv4_checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn chunk<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), NetError> {
    bytes.split_first_chunk().ok_or(NetError::TooShort { bytes: bytes.len(), needed: N })
}

fn decode_ipv4(packet: &[u8]) -> Result<(NetHeader, &[u8]), NetError> {
    let (header, rest) = chunk::<IPV4_BYTES>(packet)?;
    let [_, _, l0, l1, id @ .., _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let total = usize::from(u16::from_be_bytes([l0, l1]));
    let ip = Ip::V4 {
        src: Ipv4Addr::new(s0, s1, s2, s3),
        dst: Ipv4Addr::new(d0, d1, d2, d3),
        id: Ipv4Id::from_bytes(id).ok_or(NetError::Fragment(id))?,
    };
    decode_udp(ip, protocol, total.saturating_sub(IPV4_BYTES), rest)
}

fn decode_ipv6(packet: &[u8]) -> Result<(NetHeader, &[u8]), NetError> {
    let (header, rest) = chunk::<IPV6_BYTES>(packet)?;
    let [_, _, _, _, l0, l1, protocol, _, addresses @ ..] = *header;
    let ([src, dst], []) = addresses.as_chunks::<16>() else {
        return Err(NetError::TooShort { bytes: packet.len(), needed: IPV6_BYTES });
    };
    let (src, dst) = (Ipv6Addr::from(*src), Ipv6Addr::from(*dst));
    let payload = usize::from(u16::from_be_bytes([l0, l1]));
    decode_udp(Ip::V6 { src, dst }, protocol, payload, rest)
}

/// `ip_payload` is the length in the IP header; `bytes` may be longer, because Ethernet pads.
fn decode_udp(
    ip: Ip,
    protocol: u8,
    ip_payload: usize,
    bytes: &[u8],
) -> Result<(NetHeader, &[u8]), NetError> {
    if protocol != PROTOCOL_UDP {
        return Err(NetError::Protocol(protocol));
    }
    let datagram = bytes
        .get(..ip_payload)
        .ok_or(NetError::TooShort { bytes: bytes.len(), needed: ip_payload })?;
    let ([s0, s1, d0, d1, l0, l1, _, _], payload) = chunk::<UDP_BYTES>(datagram)?;
    let udp = usize::from(u16::from_be_bytes([*l0, *l1]));
    if udp != ip_payload {
        return Err(NetError::Length { udp, ip: ip_payload });
    }
    let header = NetHeader {
        ip,
        src_port: u16::from_be_bytes([*s0, *s1]),
        dst_port: u16::from_be_bytes([*d0, *d1]),
    };
    Ok((header, payload))
}

/// Returns the UDP source port of a queue pair: 0xC000 to 0xFFFF, by a hash of both queue pair
/// numbers.
///
/// Routers hash it to choose among equal paths. So all packets of a queue pair have the same port,
/// and those of many queue pairs differ.
pub const fn source_port(src_qpn: u32, dst_qpn: u32) -> u16 {
    let both = (src_qpn as u64) << 24 | dst_qpn as u64;
    dynamic_port((both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32)
}

/// Returns the UDP port from 0xC000 on with the upper 14 bits of a number.
pub const fn dynamic_port(number: u32) -> u16 {
    0xc000 | (number >> 18) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn packet() -> Vec<u8> {
        let net = NetHeader::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xc000);
        let mut out = [0; MAX_NET_BYTES];
        let bytes = net.encode(4, &mut out);
        [&out[..bytes], b"data"].concat()
    }

    fn changed(at: usize, byte: u8) -> NetError {
        let mut packet = packet();
        packet[at] = byte;
        NetHeader::decode(&packet).unwrap_err()
    }

    #[test]
    fn what_carries_no_rocev2_is_refused_with_what_was_seen() {
        assert_eq!(NetHeader::decode(&packet()).map(|(_, data)| data), Ok(&b"data"[..]));
        // Options, and no IP (CA17-24 of IBTA annex A17: dropped silently).
        assert_eq!(changed(0, 0x46), NetError::Version(0x46));
        assert_eq!(changed(0, 0x00), NetError::Version(0));
        assert_eq!(changed(9, 6), NetError::Protocol(6));
        // More fragments; a fragment that is not the first (CA17-7, CA17-8).
        assert_eq!(changed(6, 0x20), NetError::Fragment([0, 0, 0x20, 0]));
        assert_eq!(changed(7, 1), NetError::Fragment([0, 0, 0x40, 1]));
        assert_eq!(changed(3, 33), NetError::TooShort { bytes: 12, needed: 13 });
        assert_eq!(changed(25, 11), NetError::Length { udp: 11, ip: 12 });
        assert_eq!(NetHeader::decode(&[]), Err(NetError::TooShort { bytes: 0, needed: 20 }));
    }

    #[test]
    fn source_ports_are_dynamic_ones_and_differ() {
        let ports: BTreeSet<_> = (1..1025).map(|qpn| source_port(qpn, 17)).collect();
        assert!(ports.iter().all(|port| *port >= 0xc000));
        assert!(ports.len() > 900, "{} ports for 1024 queue pairs", ports.len());
        let both_ways: BTreeSet<_> = (1..1025).map(|qpn| source_port(17, qpn)).collect();
        assert!(both_ways.len() > 900, "{} ports", both_ways.len());
    }
}
