//! Invalidate extended transport header: the key that a SEND ends (IBTA volume 1, 9.3).

/// Length of the header.
pub(super) const BYTES: usize = 4;

pub(super) fn decode(bytes: &[u8; BYTES]) -> u32 {
    u32::from_be_bytes(*bytes)
}

pub(super) fn encode(rkey: u32) -> [u8; BYTES] {
    rkey.to_be_bytes()
}
