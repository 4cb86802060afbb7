//! Base transport header: 12 bytes that begin every packet (IBTA volume 1, 9.2).
use super::Opcode;
use super::decode_error::DecodeError;
use crate::Psn;
use catchment_verbs_types::MAX_24_BITS;

/// Length of the header.
pub(super) const BYTES: usize = 12;

/// The default partition, full member. RoCEv2 without a subnet manager has no other.
pub const PKEY_DEFAULT: u16 = 0xffff;

const SOLICITED: u8 = 1 << 7;
const MIG_REQ: u8 = 1 << 6;
const PAD_SHIFT: u8 = 4;
const VERSION_MASK: u8 = 0x0f;
const FECN: u32 = 1 << 31;
const BECN: u32 = 1 << 30;
const ACK_REQ: u32 = 1 << 31;

/// Base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// The kind of the packet.
    pub opcode: Opcode,
    /// The completion at the receiver is a solicited event.
    pub solicited: bool,
    /// State of path migration. Adapters send 1; ignored when received.
    pub mig_req: bool,
    /// Zero bytes after the payload, 0 to 3. See [`pad_bytes`].
    pub pad: u8,
    /// Partition. See [`pkey_matches`].
    pub pkey: u16,
    /// A switch saw congestion. The ICRC does not cover it.
    pub fecn: bool,
    /// The peer saw congestion. The ICRC does not cover it.
    pub becn: bool,
    /// Queue pair at the receiver, 24 bits.
    pub dest_qpn: u32,
    /// The responder must acknowledge this packet.
    pub ack_req: bool,
    /// Sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Creates a header of the default partition, without pad and flags but MigReq.
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: true,
            pad: 0,
            pkey: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_req: false,
            psn,
        }
    }

    /// Decodes a header. Reserved bits are ignored.
    pub(super) fn decode(bytes: &[u8; BYTES]) -> Result<Self, DecodeError> {
        let [opcode, flags, pkey @ .., q0, q1, q2, q3, p0, p1, p2, p3] = *bytes;
        let (qpn, psn) =
            (u32::from_be_bytes([q0, q1, q2, q3]), u32::from_be_bytes([p0, p1, p2, p3]));
        if flags & VERSION_MASK != 0 {
            return Err(DecodeError::TransportVersion(flags & VERSION_MASK));
        }
        Ok(Self {
            opcode: Opcode::from_u8(opcode).ok_or(DecodeError::UnknownOpcode(opcode))?,
            solicited: flags & SOLICITED != 0,
            mig_req: flags & MIG_REQ != 0,
            pad: (flags >> PAD_SHIFT) & 3,
            pkey: u16::from_be_bytes(pkey),
            fecn: qpn & FECN != 0,
            becn: qpn & BECN != 0,
            dest_qpn: qpn & MAX_24_BITS,
            ack_req: psn & ACK_REQ != 0,
            psn: Psn::new(psn),
        })
    }

    pub(super) fn encode(&self) -> [u8; BYTES] {
        let flag = |set: bool, bit: u8| u8::from(set) << bit;
        let flags = flag(self.solicited, 7) | flag(self.mig_req, 6) | (self.pad & 3) << PAD_SHIFT;
        let congestion = u32::from(self.fecn) << 31 | u32::from(self.becn) << 30;
        let qpn = (self.dest_qpn & MAX_24_BITS) | congestion;
        let psn = self.psn.value() | u32::from(self.ack_req) << 31;
        let [k0, k1] = self.pkey.to_be_bytes();
        let [q0, q1, q2, q3] = qpn.to_be_bytes();
        let [p0, p1, p2, p3] = psn.to_be_bytes();
        [self.opcode as u8, flags, k0, k1, q0, q1, q2, q3, p0, p1, p2, p3]
    }
}

/// Returns the queue pair number of a packet, whatever its opcode; `None` if it is too short.
pub fn dest_qpn(transport: &[u8]) -> Option<u32> {
    let [_, _, _, _, word @ .., _, _, _, _] = transport.first_chunk::<BYTES>()?;
    Some(u32::from_be_bytes(*word) & MAX_24_BITS)
}

/// Returns the number of pad bytes after a payload of this length.
pub const fn pad_bytes(payload_bytes: usize) -> u8 {
    (payload_bytes.wrapping_neg() & 3) as u8
}

/// Returns whether this is the key of the default partition, as a full or a limited member (IBTA
/// volume 1, 10.9).
pub const fn pkey_matches(pkey: u16) -> bool {
    pkey & 0x7fff == PKEY_DEFAULT & 0x7fff
}
