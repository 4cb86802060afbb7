//! The commit word: what makes a block valid.
//!
//! It mixes everything that identifies a block, so that an old block, a block of another session
//! or a half-written header is never mistaken for the expected one. Every step is a bijection of
//! its input word, so two blocks that differ in one of the words always have different commit words
//! (only the two inputs that yield 0 and 1 share a value). It is no protection against a malicious
//! peer, which can only spoil its own ring.

const SEED_A: u64 = 0x243f_6a88_85a3_08d3;
const SEED_B: u64 = 0x1319_8a2e_0370_7344;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const FINAL_1: u64 = 0xbf58_476d_1ce4_e5b9;
const FINAL_2: u64 = 0x94d0_49bb_1331_11eb;

/// Words of a header.
pub const HEADER_WORDS: usize = 7;

#[inline]
fn step(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(FACTOR).rotate_left(29)
}

#[inline]
fn finish(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.rotate_left(32);
    x = (x ^ (x >> 30)).wrapping_mul(FINAL_1);
    x = (x ^ (x >> 27)).wrapping_mul(FINAL_2);
    x ^ (x >> 31)
}

/// Mixes eight words: even ones and odd ones in two chains, which a processor runs side by side.
#[inline]
fn mix_seeded(seed_a: u64, seed_b: u64, words: &[u64; 8]) -> u64 {
    let (mut a, mut b) = (seed_a, seed_b);
    for pair in words.chunks_exact(2) {
        a = step(a, pair[0]);
        b = step(b, pair[1]);
    }
    finish(a, b)
}

/// Mixes without a session, for hashes of layouts.
pub(crate) fn mix(words: &[u64; 8]) -> u64 {
    mix_seeded(SEED_A, SEED_B, words)
}

/// Computes the commit word of a block. Never 0, so that zeroed memory holds no block.
///
/// `header` is the 56 bytes of the header as little-endian words.
#[inline]
pub fn commit_word(epoch: u64, slot: u32, generation: u64, header: &[u64; HEADER_WORDS]) -> u64 {
    let [w0, w1, w2, w3, w4, w5, w6] = *header;
    let words = [w0, w1, w2, w3, w4, w5, w6, generation];
    mix_seeded(SEED_A ^ epoch, SEED_B ^ u64::from(slot), &words).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_vectors() {
        let counting = [1, 2, 3, 4, 5, 6, 7];
        for (epoch, slot, generation, header, word) in [
            (0, 0, 0, [0; 7], 0x5ae4_5f97_6265_8ece),
            (1, 0, 1, [0; 7], 0xd71c_25e4_4134_3573),
            (0x0123_4567_89ab_cdef, 65_535, u64::MAX, [u64::MAX; 7], 0x0bf5_9cc2_b95e_9587),
            (42, 7, 3, counting, 0xe73b_1d23_3d43_bfb1),
        ] {
            assert_eq!(
                commit_word(epoch, slot, generation, &header),
                word,
                "epoch {epoch} slot {slot} generation {generation}: {:#018x}",
                commit_word(epoch, slot, generation, &header)
            );
        }
    }

    #[test]
    fn it_is_never_zero() {
        // The inputs whose mix is 0: both chains must end so that their combination is 0.
        let mut b = SEED_B;
        for word in [0, 0, 0, 0] {
            b = step(b, word);
        }
        let wanted = b.rotate_left(32);
        let mut a = SEED_A;
        for word in [0, 0, 0] {
            a = step(a, word);
        }
        let inverse =
            (0..5).fold(FACTOR, |x, _| x.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(x))));
        let w6 = wanted.rotate_right(29).wrapping_mul(inverse) ^ a;
        assert_eq!(mix_seeded(SEED_A, SEED_B, &[0, 0, 0, 0, 0, 0, w6, 0]), 0);
        assert_eq!(commit_word(0, 0, 0, &[0, 0, 0, 0, 0, 0, w6]), 1);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_changes_it(
            epoch: u64, slot: u32, generation: u64, header: [u64; 7], bit in 0u32..64, word in 0usize..10,
        ) {
            let before = commit_word(epoch, slot, generation, &header);
            let (mut e, mut s, mut g, mut h) = (epoch, slot, generation, header);
            match word {
                0..=6 => h[word] ^= 1 << bit,
                7 => e ^= 1 << bit,
                8 => s ^= 1 << (bit % 32),
                _ => g ^= 1 << bit,
            }
            prop_assert_ne!(before, commit_word(e, s, g, &h));
        }
    }
}
