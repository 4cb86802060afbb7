//! Invariant CRC: over all fields that routers do not change (IBTA volume 1, 7.8.1; annex A17,
//! A17.3.3).
//!
//! It covers 8 bytes of ones, IP and UDP headers with ones in the variant fields, and everything
//! from the BTH to the pad, with ones in the byte of the congestion bits. It is the CRC-32 of zlib
//! and Ethernet, at the end of the packet with its lowest byte first.
//!
//! What precedes the BTH depends on addresses, ports and length only. So an [`Icrc`] that was begun
//! can be copied for the next packet of the same length.
use super::bth;
pub use super::crc::LEAD_BYTES;
use super::crc::{Crc, zeros};
use super::net::{IPV4_BYTES, MAX_NET_BYTES, NetHeader, UDP_BYTES};
use thiserror::Error;

/// Length of the ICRC.
pub const ICRC_BYTES: usize = 4;

/// Ones in place of an InfiniBand local route header, which RoCEv2 lacks.
const LOCAL_ROUTE: [u8; 8] = [0xff; 8];
/// The byte of the BTH with the congestion bits, in the little-endian number of its first eight.
const CONGESTION: u64 = 0xff << (4 * 8);
const ZEROS: [u8; 3] = [0; 3];

/// What each bit of an IPv4 identification changes in the register before the BTH: a CRC is linear.
static IPV4_ID_BITS: [u32; 16] = {
    /// From the end of the identification to the BTH.
    const BEHIND_BYTES: usize = IPV4_BYTES - 6 + UDP_BYTES;
    let mut changes = [0; 16];
    let mut bit = 0;
    while bit < 16 {
        let id = (1u16 << bit).swap_bytes();
        changes[bit] = zeros(id as u32, 16 + 8 * BEHIND_BYTES as u32);
        bit += 1;
    }
    changes
};

/// The ICRC does not match.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "the packet ends with ICRC {received:08x}, but its bytes have {computed:08x}: damaged, or changed in transit"
)]
pub struct IcrcMismatch {
    /// ICRC of the packet.
    pub received: u32,
    /// ICRC of its bytes.
    pub computed: u32,
}

/// A partial ICRC: begun with [`Icrc::begin`], then headers, payload, pad.
#[derive(Clone, Copy, Debug)]
pub struct Icrc(Crc);

impl Icrc {
    /// Begins a packet with `transport_bytes` from the BTH to the pad. The result can be copied for
    /// all packets with the same header and length.
    pub fn begin(net: &NetHeader, transport_bytes: usize) -> Self {
        let mut headers = [0; MAX_NET_BYTES];
        let bytes = net.encode_masked(transport_bytes + ICRC_BYTES, &mut headers);
        let mut crc = Crc::new();
        crc.update(&LOCAL_ROUTE);
        crc.update(&headers[..bytes]);
        Self(crc)
    }

    /// Flips these bits of the IPv4 identification, which is faster than beginning again. Nothing
    /// may have been added yet.
    #[must_use]
    pub fn flip_ipv4_id(mut self, bits: u16) -> Self {
        let mut left = bits;
        while left != 0 {
            self.0.register ^= IPV4_ID_BITS[left.trailing_zeros() as usize];
            left &= left - 1;
        }
        self
    }

    /// Adds the encoded headers: the BTH and what follows it, all in one piece.
    pub fn headers(&mut self, headers: &[u8]) {
        let Some((bth, rest)) = headers.split_first_chunk::<{ bth::BYTES }>() else {
            // No packet is this short; any number will not match.
            return self.0.update(headers);
        };
        // Eight bytes at once: a load of eight stalls on one byte that was just stored.
        let mut masked = *bth;
        if let Some(first) = masked.first_chunk_mut() {
            *first = (u64::from_le_bytes(*first) | CONGESTION).to_le_bytes();
        }
        self.0.update(&masked);
        self.0.update(rest);
    }

    /// Adds a piece of the payload.
    pub fn payload(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Adds a piece of the payload that `fold` reads: memory that cannot be a slice, because others
    /// may write to it, or that `fold` reads faster.
    ///
    /// `fold` gets a register (lowest bit first, not inverted) and leading bytes. It returns the
    /// register that the piece leaves from the sum of the register and of what the leading bytes
    /// leave from register 0.
    #[inline]
    pub fn payload_folded(&mut self, fold: impl FnOnce(u32, &[u8; LEAD_BYTES]) -> u32) {
        self.0.register = fold(self.0.register, &[0; LEAD_BYTES]);
    }

    /// [`Icrc::headers`] and [`Icrc::payload_folded`] in one, with the headers as leading bytes.
    /// Returns false and adds nothing if they are longer than [`LEAD_BYTES`] or shorter than a BTH.
    #[inline]
    pub fn headers_folded(
        &mut self,
        headers: &[u8],
        fold: impl FnOnce(u32, &[u8; LEAD_BYTES]) -> u32,
    ) -> bool {
        if !(bth::BYTES..=LEAD_BYTES).contains(&headers.len()) {
            return false;
        }
        let mut lead = [0; LEAD_BYTES];
        let place = &mut lead[LEAD_BYTES - headers.len()..];
        place.copy_from_slice(headers);
        if let (Some(first), Some(place)) = (headers.first_chunk(), place.first_chunk_mut()) {
            let first = u64::from_le_bytes(*first) | CONGESTION;
            *place = (first ^ u64::from(self.0.register)).to_le_bytes();
        }
        self.0.register = fold(0, &lead);
        true
    }

    /// Adds zero bytes after the payload; more than 3 count as 3.
    pub fn pad(&mut self, bytes: u8) {
        self.0.update(&ZEROS[..usize::from(bytes).min(ZEROS.len())]);
    }

    /// Returns the ICRC as a number. On the wire it is [`u32::to_le_bytes`].
    pub fn finish(self) -> u32 {
        self.0.finish()
    }
}

/// Returns the ICRC of a packet in one piece: the bytes from the BTH to the pad.
pub fn compute(net: &NetHeader, transport: &[u8]) -> u32 {
    let mut icrc = Icrc::begin(net, transport.len());
    icrc.headers(transport);
    icrc.finish()
}

/// Checks the ICRC of a packet whose IP header is known: IPv6, or IPv4 with its identification.
/// Otherwise use [`super::ip_id::Solver`].
///
/// # Errors
/// When it does not match: drop the packet.
pub fn verify(net: &NetHeader, transport: &[u8], received: u32) -> Result<(), IcrcMismatch> {
    let computed = compute(net, transport);
    if computed == received {
        return Ok(());
    }
    Err(IcrcMismatch { received, computed })
}

/// Splits the payload of a UDP datagram into transport bytes and ICRC; `None` if it is too short.
pub fn split(datagram: &[u8]) -> Option<(&[u8], u32)> {
    let (transport, icrc) = datagram.split_last_chunk()?;
    Some((transport, u32::from_le_bytes(*icrc)))
}

#[cfg(test)]
mod tests {
    use super::super::net::Ipv4Id;
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn flipping_bits_of_the_identification_is_beginning_with_another_one() {
        let net = NetHeader::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 1, 2, 3), 7);
        let begin = |id| Icrc::begin(&net.with_ipv4_id(Ipv4Id::new(id)), 300);
        for (from, to) in [(0, 0), (0, 1), (0, 63), (5, 0xffff), (0x8000, 0x1234)] {
            let flipped = begin(from).flip_ipv4_id(from ^ to);
            assert_eq!(flipped.finish(), begin(to).finish(), "{from:x} {to:x}");
        }
    }
}
