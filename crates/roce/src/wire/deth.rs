//! Datagram extended transport header: who may receive and who sent (IBTA volume 1, 9.3).

/// Length of the header.
pub(super) const BYTES: usize = 8;

const QPN_MASK: u32 = 0x00ff_ffff;

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// Key that the receiving queue pair must have.
    pub qkey: u32,
    /// The sender's queue pair, 24 bits.
    pub src_qpn: u32,
}

impl Deth {
    pub(super) fn decode(bytes: &[u8; BYTES]) -> Self {
        let number = u64::from_be_bytes(*bytes);
        Self { qkey: (number >> 32) as u32, src_qpn: number as u32 & QPN_MASK }
    }

    pub(super) fn encode(self) -> [u8; BYTES] {
        (u64::from(self.qkey) << 32 | u64::from(self.src_qpn & QPN_MASK)).to_be_bytes()
    }
}
