//! Packet captures for Wireshark: formats bytes, writes no file.
//!
//! The format is that of libpcap with nanoseconds, little-endian; each packet begins with its IP
//! header (link type 101, "raw IP").
use crate::wire::net::{MAX_NET_BYTES, NetHeader};
use std::time::Duration;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINK_TYPE_RAW_IP: u32 = 101;
/// Snapshot length: the longest packet.
const PACKET_BYTES_MAX: u32 = 1 << 16;

/// Returns the file header of a capture.
pub fn file_header() -> [u8; 24] {
    let version = [2_u16, 4].map(u16::to_le_bytes);
    let words = [0, 0, PACKET_BYTES_MAX, LINK_TYPE_RAW_IP].map(u32::to_le_bytes);
    let mut header = [0; 24];
    header[..4].copy_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
    header[4..8].copy_from_slice(version.as_flattened());
    header[8..].copy_from_slice(words.as_flattened());
    header
}

/// Appends one packet to a capture: the IP and UDP headers of `net`, then the payload of the
/// datagram, ICRC included.
///
/// `at` is the time since 1970 or any other origin; seconds wrap at 32 bits.
pub fn append(out: &mut Vec<u8>, at: Duration, net: &NetHeader, datagram: &[u8]) {
    let mut headers = [0; MAX_NET_BYTES];
    let net_bytes = net.encode(datagram.len(), &mut headers);
    let packet_bytes = (net_bytes + datagram.len()) as u32;
    let record = [at.as_secs() as u32, at.subsec_nanos(), packet_bytes, packet_bytes];
    out.extend_from_slice(record.map(u32::to_le_bytes).as_flattened());
    out.extend_from_slice(&headers[..net_bytes]);
    out.extend_from_slice(datagram);
}
