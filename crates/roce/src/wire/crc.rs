//! CRC-32 of zlib and Ethernet, with an accessible register.
//!
//! `crc32fast` computes it, with the processor's instructions where it has any, else with tables. Long
//! pieces are quicker by shifts than by tables: a bit is replaced by four later ones until only the last
//! bytes are left, since a multiple of the polynomial has only five terms (Russell, "Chorba: A novel
//! CRC32 implementation", arXiv 2412.16398, 2024).
use crc32fast::Hasher;

/// Longest headers that [`Icrc::headers_folded`](super::Icrc::headers_folded) takes: BTH, RETH and immediate data.
pub const LEAD_BYTES: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Crc {
    /// Lowest bit first, not inverted.
    pub(super) register: u32,
}

impl Crc {
    #[inline]
    pub(super) fn new() -> Self {
        Self { register: !0 }
    }

    #[inline]
    pub(super) fn update(&mut self, bytes: &[u8]) {
        // Mostly a pad: to ask what the processor can do takes longer than nothing.
        if bytes.is_empty() {
            return;
        }
        let update = if has_crc_instructions() { library } else { shift };
        self.register = update(self.register, bytes);
    }

    #[inline]
    pub(super) fn finish(self) -> u32 {
        !self.register
    }
}

/// Returns whether `crc32fast` uses instructions of this processor.
#[inline]
pub fn has_crc_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1");
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64")
}

fn library(register: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(!register);
    hasher.update(bytes);
    !hasher.finalize()
}

/// A bit leaves what four bits leave together that come so many bits later.
const LATER: [u32; 4] = [145, 183, 211, 300];

const _: () = {
    let [a, b, c, d] = LATER;
    let four = zeros(1, d - a) ^ zeros(1, d - b) ^ zeros(1, d - c) ^ zeros(1, 0);
    assert!(zeros(1, d) == four);
};

/// Words of 16 bytes that one word's bits are moved into.
const REACH: usize = 3;

/// Little-endian numbers.
#[inline]
fn numbers(words: &[[u8; 16]]) -> impl Iterator<Item = u128> {
    words.iter().map(|word| u128::from_le_bytes(*word))
}

fn shift(register: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks();
    let Some((body, last)) = words.split_last_chunk::<REACH>() else {
        return library(register, bytes);
    };
    let last = last.map(u128::from_le_bytes);
    library(shift_words([u128::from(register), 0, 0], numbers(body), last), rest)
}

/// Folds a piece for [`Icrc::payload_folded`](super::Icrc::payload_folded): little-endian numbers of 16
/// bytes, the last three of them apart, with bytes that lead.
#[inline]
pub fn fold_by_shifts(
    register: u32,
    lead: &[u8; LEAD_BYTES],
    body: impl Iterator<Item = u128>,
    last: [u128; REACH],
) -> u32 {
    let mut sums = numbers(lead.as_chunks().0).fold([0; REACH], move_on);
    sums[0] ^= u128::from(register);
    shift_words(sums, body, last)
}

/// Returns the register that words leave, the first of which `sums` are added to: moves the bits of all but
/// the last three into later ones; what those then hold is short.
#[inline]
fn shift_words(sums: [u128; REACH], body: impl Iterator<Item = u128>, last: [u128; REACH]) -> u32 {
    let sums = body.fold(sums, move_on);
    let left: [_; REACH] = std::array::from_fn(|at| (sums[at] ^ last[at]).to_le_bytes());
    library(0, left.as_flattened())
}

/// Adds a word to what was moved into it, and moves it on into the next three.
#[inline]
fn move_on(sums: [u128; REACH], word: u128) -> [u128; REACH] {
    let [a, b, c, d] = LATER;
    let word = word ^ sums[0];
    let next = (word << (a - 128)) ^ (word << (b - 128)) ^ (word << (c - 128));
    let second = (word >> (256 - a)) ^ (word >> (256 - b)) ^ (word >> (256 - c));
    [sums[1] ^ next, sums[2] ^ second ^ (word << (d - 256)), word >> (384 - d)]
}

/// Returns the register after this many zero bits that follow a message which left `register`.
pub(super) const fn zeros(mut register: u32, bits: u32) -> u32 {
    let mut bit = 0;
    while bit < bits {
        register = (register >> 1) ^ (0xedb8_8320 & (register & 1).wrapping_neg());
        bit += 1;
    }
    register
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_crc_is_that_of_zlib_whatever_the_pieces() {
        let whole = b"123456789";
        for cut in 0..=whole.len() {
            let mut crc = Crc::new();
            crc.update(&whole[..cut]);
            crc.update(&whole[cut..]);
            assert_eq!(crc.finish(), 0xcbf4_3926);
        }
    }

    proptest! {
        #[test]
        fn shifts_leave_what_the_library_leaves(
            register in any::<u32>(),
            bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            prop_assert_eq!(shift(register, &bytes), library(register, &bytes));
        }
    }

    #[test]
    fn zero_bits_leave_what_zero_bytes_leave() {
        let mut crc = Crc::new();
        crc.update(&[0x5a; 7]);
        let register = crc.register;
        crc.update(&[0; 9]);
        assert_eq!(zeros(register, 72), crc.register);
    }
}
