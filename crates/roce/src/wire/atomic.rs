//! Headers of atomic operations: the request's operands, the answer's old value (IBTA volume 1,
//! 9.3).

/// Length of [`AtomicEth`].
pub(super) const BYTES: usize = 28;
/// Length of the header with the old value.
pub(super) const ACK_BYTES: usize = 8;

/// Operands of an atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address at the responder, a multiple of 8.
    pub va: u64,
    /// Key of the responder's memory region.
    pub rkey: u32,
    /// What to store, or what to add.
    pub swap_or_add: u64,
    /// What to compare with; 0 for fetch and add.
    pub compare: u64,
}

impl AtomicEth {
    pub(super) fn decode(bytes: &[u8; BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, k0, k1, k2, k3, operands @ ..] = *bytes;
        let operands = u128::from_be_bytes(operands);
        Self {
            va: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_be_bytes([k0, k1, k2, k3]),
            swap_or_add: (operands >> 64) as u64,
            compare: operands as u64,
        }
    }

    pub(super) fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }
}
