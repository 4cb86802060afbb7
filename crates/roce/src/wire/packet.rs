//! Headers and whole packets: decode, encode.
use super::atomic::AtomicEth;
use super::decode_error::DecodeError;
use super::opcode::HeaderSet;
use super::{Aeth, Bth, Deth, Opcode, Reth, aeth, atomic, bth, deth, reth};
use crate::Psn;

/// Length of the longest headers: those of an atomic operation.
pub const MAX_HEADER_BYTES: usize = bth::BYTES + atomic::BYTES;

/// Immediate data, and the key that a SEND invalidates (IBTA volume 1, 9.3).
pub(super) const WORD_BYTES: usize = 4;
/// Reserved bytes of a congestion notification.
const CNP_BYTES: usize = 16;

/// All headers of a packet.
///
/// Decoding sets those of [`Opcode::headers`]; the others are `None`. Encoding also follows the
/// opcode: it writes a missing header as zeros, and omits an extra one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Q_Key and source queue pair of a datagram.
    pub deth: Option<Deth>,
    /// Range of a WRITE or READ.
    pub reth: Option<Reth>,
    /// Operands of an atomic operation.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// The value before an atomic operation.
    pub atomic_ack: Option<u64>,
    /// Immediate data, as in verbs; on the wire in network byte order.
    pub imm: Option<u32>,
    /// The key that a SEND invalidates.
    pub ieth: Option<u32>,
}

impl Headers {
    /// Returns headers with the BTH only.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
        }
    }

    /// Returns a congestion notification for this queue pair (IBTA annex A17, figure 6): BECN is
    /// set, PSN and flags are zero. The partition is that of the packet that was marked: the
    /// default one.
    pub const fn cnp(dest_qpn: u32) -> Self {
        let mut bth = Bth::new(Opcode::Cnp, dest_qpn, Psn::new(0));
        bth.becn = true;
        bth.mig_req = false;
        Self::new(bth)
    }

    /// Decodes the headers at the beginning of `bytes`, and returns their length.
    ///
    /// # Errors
    /// When there are too few bytes, or the headers are not supported.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let mut rest = Rest::new(bytes);
        let bth = Bth::decode(rest.take(bth::BYTES)?)?;
        let header_bytes = bth.opcode.header_bytes();
        let set = bth.opcode.headers();
        let mut headers = Self::new(bth);
        if set == HeaderSet::NONE {
            return Ok((headers, header_bytes));
        }
        if set.has(HeaderSet::DETH) {
            headers.deth = Some(Deth::decode(rest.take(header_bytes)?));
        }
        if set.has(HeaderSet::RETH) {
            headers.reth = Some(Reth::decode(rest.take(header_bytes)?));
        }
        if set.has(HeaderSet::ATOMIC) {
            headers.atomic = Some(AtomicEth::decode(rest.take(header_bytes)?));
        }
        if set.has(HeaderSet::AETH) {
            headers.aeth = Some(Aeth::decode(rest.take(header_bytes)?));
        }
        if set.has(HeaderSet::ATOMIC_ACK) {
            headers.atomic_ack = Some(u64::from_be_bytes(*rest.take(header_bytes)?));
        }
        if set.has(HeaderSet::IMM) {
            headers.imm = Some(u32::from_be_bytes(*rest.take(header_bytes)?));
        }
        if set.has(HeaderSet::IETH) {
            headers.ieth = Some(u32::from_be_bytes(*rest.take(header_bytes)?));
        }
        if set.has(HeaderSet::CNP) {
            rest.take::<CNP_BYTES>(header_bytes)?;
        }
        Ok((headers, header_bytes))
    }

    /// Writes the headers to the beginning of `out`, and returns their length.
    ///
    /// Excess bits of a field are dropped. The pad count is that of [`Bth::pad`].
    #[inline]
    pub fn encode(&self, out: &mut [u8; MAX_HEADER_BYTES]) -> usize {
        let set = self.bth.opcode.headers();
        let mut at = put(out, 0, &self.bth.encode());
        if set == HeaderSet::NONE {
            return at;
        }
        if set.has(HeaderSet::DETH) {
            at = put(out, at, &self.deth.unwrap_or_default().encode());
        }
        if set.has(HeaderSet::RETH) {
            at = put(out, at, &self.reth.unwrap_or_default().encode());
        }
        if set.has(HeaderSet::ATOMIC) {
            at = put(out, at, &self.atomic.unwrap_or_default().encode());
        }
        if set.has(HeaderSet::AETH) {
            at = put(out, at, &self.aeth.map_or([0; aeth::BYTES], Aeth::encode));
        }
        if set.has(HeaderSet::ATOMIC_ACK) {
            at = put(out, at, &self.atomic_ack.unwrap_or_default().to_be_bytes());
        }
        if set.has(HeaderSet::IMM) {
            at = put(out, at, &self.imm.unwrap_or_default().to_be_bytes());
        }
        if set.has(HeaderSet::IETH) {
            at = put(out, at, &self.ieth.unwrap_or_default().to_be_bytes());
        }
        if set.has(HeaderSet::CNP) {
            at = put(out, at, &[0; CNP_BYTES]);
        }
        at
    }
}

fn put<const N: usize>(out: &mut [u8; MAX_HEADER_BYTES], at: usize, bytes: &[u8; N]) -> usize {
    out[at..at + N].copy_from_slice(bytes);
    at + N
}

/// The remaining bytes.
struct Rest<'a> {
    bytes: &'a [u8],
    total: usize,
}

impl<'a> Rest<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, total: bytes.len() }
    }

    /// Takes the next `N` bytes; `needed` is for the error.
    fn take<const N: usize>(&mut self, needed: usize) -> Result<&'a [u8; N], DecodeError> {
        let short = DecodeError::TooShort { bytes: self.total, needed };
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(short)?;
        self.bytes = rest;
        Ok(taken)
    }
}

/// A packet: headers, and a borrowed payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The headers.
    pub headers: Headers,
    /// The payload, without its pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Decodes the transport bytes of a packet: from the BTH to the pad, without the ICRC.
    ///
    /// The values of pad bytes and of reserved bits are ignored.
    ///
    /// # Errors
    /// When the bytes are not a supported packet: count it by [`DecodeError::reason`] and
    /// send no answer.
    #[inline]
    pub fn decode(transport: &'a [u8]) -> Result<Self, DecodeError> {
        let (headers, header_bytes) = Headers::decode(transport)?;
        let rest = &transport[header_bytes..];
        let Bth { pad, opcode, .. } = headers.bth;
        let bytes = rest.len();
        if !transport.len().is_multiple_of(4) {
            return Err(DecodeError::Misaligned(transport.len()));
        }
        if bytes != 0 && !opcode.has_payload() {
            return Err(DecodeError::UnexpectedPayload { opcode, bytes });
        }
        let payload_bytes =
            bytes.checked_sub(usize::from(pad)).ok_or(DecodeError::PadTooLong { pad, bytes })?;
        Ok(Self { headers, payload: &rest[..payload_bytes] })
    }
}

const _: () = {
    assert!(HeaderSet::DETH.bytes() == deth::BYTES);
    assert!(HeaderSet::RETH.bytes() == reth::BYTES);
    assert!(HeaderSet::ATOMIC.bytes() == atomic::BYTES);
    assert!(HeaderSet::AETH.bytes() == aeth::BYTES);
    assert!(HeaderSet::ATOMIC_ACK.bytes() == atomic::ACK_BYTES);
    assert!(HeaderSet::IMM.bytes() == WORD_BYTES);
    assert!(HeaderSet::IETH.bytes() == WORD_BYTES);
    assert!(HeaderSet::CNP.bytes() == CNP_BYTES);
};
