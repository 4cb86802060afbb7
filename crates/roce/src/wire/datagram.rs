//! From the payload of a UDP datagram to a packet, and back.
//!
//! [`open`] makes the checks that need no queue pair, cheapest first. [`seal`] writes a packet in
//! one piece; a driver that gathers from registered memory uses [`Headers::encode`] and [`Icrc`].
use super::decode_error::DecodeError;
use super::icrc::{self, ICRC_BYTES, Icrc, IcrcMismatch};
use super::ip_id::Solver;
use super::net::NetHeader;
use super::packet::{Headers, MAX_HEADER_BYTES, Packet};
use super::{DropReason, bth, pad_bytes, pkey_matches};
use thiserror::Error;

/// Why a datagram holds no packet that a queue pair may see.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Not a packet of a supported format.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Damaged, or changed in transit.
    #[error(transparent)]
    Icrc(#[from] IcrcMismatch),
    /// For another partition: the key seen.
    #[error(
        "P_Key {0:#06x} is not that of the default partition: configure the peer to use 0xffff"
    )]
    PartitionKey(u16),
}

impl OpenError {
    /// Returns the counter for it.
    pub const fn reason(self) -> DropReason {
        match self {
            Self::Decode(error) => error.reason(),
            Self::Icrc(_) => DropReason::Icrc,
            Self::PartitionKey(_) => DropReason::PartitionKey,
        }
    }
}

/// Decodes the payload of a UDP datagram, and checks all that needs no queue pair: format, ICRC and
/// partition. The caller checks the destination queue pair, its transport and its peer.
///
/// `net` is the header of the datagram; over IPv4, its identification does not matter.
///
/// # Errors
/// When the datagram is to be dropped: count it by [`OpenError::reason`] and send no answer.
pub fn open<'a>(
    net: &NetHeader,
    datagram: &'a [u8],
    solver: &mut Solver,
) -> Result<Packet<'a>, OpenError> {
    let short = DecodeError::TooShort { bytes: datagram.len(), needed: bth::BYTES + ICRC_BYTES };
    let (transport, received) = icrc::split(datagram).ok_or(short)?;
    let packet = Packet::decode(transport)?;
    solver.verify(net, transport, received)?;
    let pkey = packet.headers.bth.pkey;
    if !pkey_matches(pkey) {
        return Err(OpenError::PartitionKey(pkey));
    }
    Ok(packet)
}

/// Appends the payload of a UDP datagram to `out`: headers, payload, pad and ICRC.
///
/// The pad count follows from the payload's length; [`super::Bth::pad`] is ignored.
pub fn seal(net: &NetHeader, headers: &Headers, payload: &[u8], out: &mut Vec<u8>) {
    let mut headers = *headers;
    headers.bth.pad = pad_bytes(payload.len());
    let mut encoded = [0; MAX_HEADER_BYTES];
    let header_bytes = headers.encode(&mut encoded);
    let encoded = &encoded[..header_bytes];
    let pad = usize::from(headers.bth.pad);

    let mut icrc = Icrc::begin(net, header_bytes + payload.len() + pad);
    icrc.headers(encoded);
    icrc.payload(payload);
    icrc.pad(headers.bth.pad);

    out.extend_from_slice(encoded);
    out.extend_from_slice(payload);
    out.extend_from_slice(&[0; 3][..pad]);
    out.extend_from_slice(&icrc.finish().to_le_bytes());
}
