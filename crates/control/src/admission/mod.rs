//! Grants the right to send over links that many sources share.

/// Bits of payload a second.
pub type Bps = u64;
