//! Datagram extended transport header: Q_Key and source queue pair (IBTA volume 1, 9.3).
use catchment_verbs_types::MAX_24_BITS;

/// Length of the header.
pub(super) const BYTES: usize = 8;

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
        Self { qkey: (number >> 32) as u32, src_qpn: number as u32 & MAX_24_BITS }
    }

    pub(super) fn encode(self) -> [u8; BYTES] {
        (u64::from(self.qkey) << 32 | u64::from(self.src_qpn & MAX_24_BITS)).to_be_bytes()
    }
}
