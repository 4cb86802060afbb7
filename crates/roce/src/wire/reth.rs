//! RDMA extended transport header: the range of a WRITE or READ (IBTA volume 1, 9.3.3).

/// Length of the header.
pub(super) const BYTES: usize = 16;

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Address of the first byte, at the responder.
    pub va: u64,
    /// Key of the responder's memory region.
    pub rkey: u32,
    /// Length of the whole message, not of this packet.
    pub dma_bytes: u32,
}

impl Reth {
    pub(super) fn decode(bytes: &[u8; BYTES]) -> Self {
        let number = u128::from_be_bytes(*bytes);
        Self { va: (number >> 64) as u64, rkey: (number >> 32) as u32, dma_bytes: number as u32 }
    }

    pub(super) fn encode(self) -> [u8; BYTES] {
        let low = u64::from(self.rkey) << 32 | u64::from(self.dma_bytes);
        (u128::from(self.va) << 64 | u128::from(low)).to_be_bytes()
    }
}
