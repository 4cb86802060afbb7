//! The immediate of a block: its position and its length.

/// Position and length in the 32 bits that a WRITE_WITH_IMM carries.
///
/// The position takes the upper bits, as many as the numbers 0 to N - 1 need; the length in bytes
/// takes the others. With 3 blocks that is 2 and 30 bits, with 64 blocks 6 and 26.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Immediate {
    /// The slot, 0 to N - 1.
    pub position: u32,
    /// Payload bytes.
    pub bytes: u32,
}

/// How the 32 bits are divided among a ring's positions and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImmediateFormat {
    blocks: u32,
    length_bits: u32,
}

impl ImmediateFormat {
    /// Returns the format for a ring of so many blocks, at least one.
    pub fn new(blocks: u32) -> Self {
        Self { blocks, length_bits: blocks.saturating_sub(1).leading_zeros() }
    }

    /// Returns the largest length that fits.
    pub fn max_bytes(&self) -> u32 {
        match 1u32.checked_shl(self.length_bits) {
            Some(beyond) => beyond - 1,
            None => u32::MAX,
        }
    }

    /// Returns the 32 bits. The position is within the ring, and the length at most
    /// [`ImmediateFormat::max_bytes`].
    #[inline]
    pub fn encode(&self, immediate: Immediate) -> u32 {
        debug_assert!(immediate.position < self.blocks && immediate.bytes <= self.max_bytes());
        immediate.position.checked_shl(self.length_bits).unwrap_or(0) | immediate.bytes
    }

    /// Decodes 32 bits; `None` for a position outside the ring.
    #[inline]
    pub fn decode(&self, value: u32) -> Option<Immediate> {
        let position = value.checked_shr(self.length_bits).unwrap_or(0);
        (position < self.blocks).then_some(Immediate { position, bytes: value & self.max_bytes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn s1_4_the_immediate_says_position_and_length() {
        let golden = [
            (1, 0, 0x00e1_0000, 0x00e1_0000),
            (2, 1, 0x00e1_0000, 0x80e1_0000),
            (3, 0, 64, 0x0000_0040),
            (3, 1, 921_600, 0x400e_1000),
            (3, 2, 22_000_000, 0x814f_b180),
            (64, 63, 8 << 20, 0xfc80_0000),
            (1024, 1023, 4_194_303, 0xffff_ffff),
        ];
        for (blocks, position, bytes, value) in golden {
            let format = ImmediateFormat::new(blocks);
            let immediate = Immediate { position, bytes };
            assert_eq!(format.encode(immediate), value, "{blocks} {immediate:?}");
            assert_eq!(format.decode(value), Some(immediate));
        }
        assert_eq!(ImmediateFormat::new(3).max_bytes(), (1 << 30) - 1);
        assert_eq!(ImmediateFormat::new(1).max_bytes(), u32::MAX);
    }

    #[test]
    fn a_position_outside_the_ring_is_refused() {
        assert_eq!(ImmediateFormat::new(3).decode(3 << 30), None);
        assert_eq!(ImmediateFormat::new(5).decode(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(blocks in 1u32..=65_536, position: u32, bytes: u32) {
            let format = ImmediateFormat::new(blocks);
            let immediate = Immediate {
                position: position % blocks,
                bytes: bytes & format.max_bytes(),
            };
            prop_assert_eq!(format.decode(format.encode(immediate)), Some(immediate));
        }

        #[test]
        fn any_bits_are_decoded_within_the_ring_or_refused(blocks in 1u32..=65_536, value: u32) {
            if let Some(immediate) = ImmediateFormat::new(blocks).decode(value) {
                prop_assert!(immediate.position < blocks);
            }
        }
    }
}
