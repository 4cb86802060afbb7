//! Immediate data: 4 bytes for the receiver's completion (IBTA volume 1, 9.3).
//!
//! The number of verbs in network byte order; nobody on the way looks at it.

/// Length of the header.
pub(super) const BYTES: usize = 4;

pub(super) fn decode(bytes: &[u8; BYTES]) -> u32 {
    u32::from_be_bytes(*bytes)
}

pub(super) fn encode(imm: u32) -> [u8; BYTES] {
    imm.to_be_bytes()
}
