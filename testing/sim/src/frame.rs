//! What a link carries.

/// An IP packet on its way, from the first byte of its IP header to the last of its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    /// A frame of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The bytes of the packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How long the packet is; the link adds nothing to it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Inverts one bit; does nothing where the frame has no such bit.
    pub fn flip(&mut self, bit: usize) {
        if let Some(byte) = self.bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}
