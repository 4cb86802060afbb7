//! What a link carries.

/// ECN bits of a packet whose transport is ECN-capable (ECT(0)).
pub(crate) const ECN_CAPABLE: u8 = 2;
/// ECN bits of a packet that experienced congestion (CE).
pub(crate) const CONGESTION_EXPERIENCED: u8 = 3;
const ECN_SHIFT: u32 = 4;
/// DSCP from which on a packet is urgent: class selector 4 and higher.
const URGENT_DSCP: u8 = 32;

/// An IP packet in flight, from the first byte of its IP header to the last of its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the length of the packet; the link adds nothing to it.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the ECN bits of an IPv6 packet (RFC 3168); 0 for anything else.
    pub(crate) fn ecn(&self) -> u8 {
        match self.bytes[..] {
            [first, second, ..] if first >> 4 == 6 => second >> ECN_SHIFT & 3,
            _ => 0,
        }
    }

    pub(crate) fn set_ecn(&mut self, ecn: u8) {
        if let [first, second, ..] = &mut self.bytes[..]
            && *first >> 4 == 6
        {
            *second = *second & !(3 << ECN_SHIFT) | (ecn & 3) << ECN_SHIFT;
        }
    }

    /// Returns the DSCP of an IPv6 packet (RFC 2474); 0 for anything else.
    pub(crate) fn dscp(&self) -> u8 {
        match self.bytes[..] {
            [first, second, ..] if first >> 4 == 6 => (first & 0xf) << 2 | second >> 6,
            _ => 0,
        }
    }

    pub(crate) fn set_dscp(&mut self, dscp: u8) {
        if let [first, second, ..] = &mut self.bytes[..]
            && *first >> 4 == 6
        {
            *first = 6 << 4 | dscp >> 2 & 0xf;
            *second = *second & 0x3f | dscp << 6;
        }
    }

    /// Returns whether its DSCP says that the packet is urgent.
    pub(crate) fn is_urgent(&self) -> bool {
        self.dscp() >= URGENT_DSCP
    }

    /// Marks the packet as CE if its transport is ECN-capable; returns whether it did.
    pub(crate) fn mark(&mut self) -> bool {
        let capable = self.ecn() != 0;
        if capable {
            self.set_ecn(CONGESTION_EXPERIENCED);
        }
        capable
    }

    /// Inverts one bit; does nothing where the frame has no such bit.
    pub(crate) fn flip(&mut self, bit: usize) {
        if let Some(byte) = self.bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}
