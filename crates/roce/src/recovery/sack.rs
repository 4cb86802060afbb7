//! The SACK packet: which packets after a gap have arrived.
//!
//! Opcode 0xC0, BTH, AETH (an ACK), and a bitmap as payload. BTH.PSN is the last PSN taken in
//! order, as in an ACK. The payload begins with the number of the first bit, 4 bytes, most
//! significant first: bit `b` of the bitmap stands for `BTH.PSN + 2 + first + b`, because the PSN
//! right after
//! `BTH.PSN` is missing by definition. Bits are in bytes, least significant first. A 1 means kept; a
//! 0 means nothing where a later packet of the same answer may have the bit.
#[cfg(test)]
use super::bits::ones;
use crate::Psn;

/// Bytes before the bitmap.
pub(crate) const PREFIX_BYTES: usize = 4;

/// A decoded SACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sack<'a> {
    /// Last PSN taken in order.
    pub(crate) cumulative: Psn,
    first: u32,
    bitmap: &'a [u8],
}

impl<'a> Sack<'a> {
    /// Returns `None` when the payload is too short or the first bit is too far away.
    pub(crate) fn decode(cumulative: Psn, payload: &'a [u8]) -> Option<Self> {
        let (first, bitmap) = payload.split_first_chunk::<PREFIX_BYTES>()?;
        let first = u32::from_be_bytes(*first);
        (first < 1 << 20).then_some(Sack { cumulative, first, bitmap })
    }

    /// Returns the bits, 64 at a time, each with the distance of its first PSN from the cumulative one, ascending.
    pub(crate) fn words(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let start = self.first + 2;
        self.bitmap.chunks(8).zip(0u32..).map(move |(bytes, index)| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            (start + 64 * index, u64::from_le_bytes(word))
        })
    }

    /// Returns the PSNs with a 1, as distances from the cumulative one, ascending.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> impl Iterator<Item = u32> {
        self.words().flat_map(|(start, word)| ones(word).map(move |bit| start + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_distances_after_the_missing_one() {
        let sack = Sack::decode(Psn::new(10), &[0, 0, 0, 16, 0b1000_0001, 0, 0b10]).unwrap();
        assert_eq!(sack.cumulative, Psn::new(10));
        assert_eq!(sack.kept().collect::<Vec<_>>(), [18, 25, 35]);
    }

    #[test]
    fn short_and_far_ones_are_refused() {
        assert!(Sack::decode(Psn::new(0), &[]).is_none());
        assert!(Sack::decode(Psn::new(0), &[0, 0, 0]).is_none());
        assert!(Sack::decode(Psn::new(0), &[0, 0x10, 0, 0]).is_none());
        assert_eq!(Sack::decode(Psn::new(0), &[0; 4]).unwrap().kept().count(), 0);
    }
}
