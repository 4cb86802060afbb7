//! RoCEv2 packets (docs/spec/roce-profile.md) with the addresses of others.
use anyhow::{Context as _, Result};
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, SendFlags, SocketAddrV4, SocketFlags, SocketType,
};
use std::net::Ipv4Addr;
use std::num::NonZeroU32;

pub(crate) const PORT: u16 = 4791;
pub(crate) const WRITE_ONLY: u8 = 0x0a;
pub(crate) const ACKNOWLEDGE: u8 = 0x11;
pub(crate) const CNP: u8 = 0x81;

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// A base transport header.
#[derive(Clone, Copy)]
pub(crate) struct Bth {
    pub(crate) opcode: u8,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) ack: bool,
}

/// Returns the transport bytes of a packet, without the ICRC.
pub(crate) fn transport(bth: Bth, rest: &[u8]) -> Vec<u8> {
    let pad = rest.len().wrapping_neg() % 4;
    let flags = (if bth.opcode == CNP { 0 } else { 0x40 }) | (pad as u8) << 4;
    let mut bytes = vec![bth.opcode, flags, 0xff, 0xff];
    let becn = if bth.opcode == CNP { 0x40 } else { 0 };
    bytes.extend((becn << 24 | bth.qpn).to_be_bytes());
    bytes.extend((u32::from(bth.ack) << 31 | bth.psn & 0xff_ffff).to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes.resize(bytes.len() + pad, 0);
    bytes
}

pub(crate) fn reth(addr: u64, key: u32, bytes: u32) -> Vec<u8> {
    let mut header = addr.to_be_bytes().to_vec();
    header.extend(key.to_be_bytes());
    header.extend(bytes.to_be_bytes());
    header
}

/// An acknowledgement header: a syndrome, and messages counted.
pub(crate) fn aeth(syndrome: u8) -> Vec<u8> {
    vec![syndrome, 0, 0, 1]
}

/// NAK remote access error.
pub(crate) const NAK_ACCESS: u8 = 0x62;
/// NAK PSN sequence error.
pub(crate) const NAK_SEQUENCE: u8 = 0x60;

/// Where a packet says that it comes from, and where it goes.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) from: (Ipv4Addr, u16),
    pub(crate) to: (Ipv4Addr, u16),
}

/// Returns the whole datagram with its IP header.
pub(crate) fn datagram(route: Route, transport: &[u8]) -> Vec<u8> {
    let udp_bytes = (UDP_BYTES + transport.len() + 4) as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend((IP_BYTES as u16 + udp_bytes).to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(route.from.0.octets());
    bytes.extend(route.to.0.octets());
    bytes.extend(route.from.1.to_be_bytes());
    bytes.extend(route.to.1.to_be_bytes());
    bytes.extend(udp_bytes.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend_from_slice(transport);
    let icrc = icrc(&bytes);
    bytes.extend(icrc.to_le_bytes());
    bytes
}

fn icrc(datagram: &[u8]) -> u32 {
    let mut masked = vec![0xff; 8];
    masked.extend_from_slice(datagram);
    // Type of service, time to live, header checksum, UDP checksum, byte 4 of the BTH.
    for at in [1, 8, 10, 11, 26, 27, 32] {
        masked[8 + at] = 0xff;
    }
    crc32fast::hash(&masked)
}

/// A socket that sends whole datagrams.
pub(crate) struct Raw(OwnedFd);

impl Raw {
    pub(crate) fn open() -> Result<Self> {
        // IPPROTO_RAW: the header of the datagram is its sender's.
        let protocol = Protocol::from_raw(RawProtocol::from(NonZeroU32::MIN.saturating_add(254)));
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let fd = rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol));
        Ok(Self(fd.context("raw sockets need CAP_NET_RAW")?))
    }

    pub(crate) fn send(&self, route: Route, transport: &[u8]) -> Result<()> {
        let bytes = datagram(route, transport);
        let to = SocketAddrV4::new(route.to.0, 0);
        loop {
            match rustix::net::sendto(&self.0, &bytes, SendFlags::empty(), &to) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::NOBUFS) => std::thread::yield_now(),
                Err(error) => return Err(error).context("cannot send a datagram"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_lengths_that_its_headers_say() {
        let bth = Bth { opcode: WRITE_ONLY, qpn: 0x1234, psn: 7, ack: true };
        let transport = transport(bth, &[reth(1, 2, 3), vec![9; 3]].concat());
        assert_eq!((transport.len(), transport[1] >> 4 & 3), (12 + 16 + 4, 1));
        let ip = Ipv4Addr::LOCALHOST;
        let bytes = datagram(Route { from: (ip, 1), to: (ip, PORT) }, &transport);
        assert_eq!(bytes.len(), 20 + 8 + 32 + 4);
        assert_eq!(u16::from_be_bytes([bytes[2], bytes[3]]) as usize, bytes.len());
    }
}
