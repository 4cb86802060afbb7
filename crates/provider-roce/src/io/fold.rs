//! CRC-32 over memory that others may write meanwhile, without copying it first.
//!
//! Library functions want a `&[u8]`, which nobody may change. So the bytes are read here, with
//! volatile loads that go straight into the arithmetic: a number that others change meanwhile gives
//! a wrong checksum, and nothing else. What is left are a few bytes with the same remainder; an
//! ordinary function ends with them.
//!
//! - [`fold`] multiplies without carries: that moves the polynomial of what was read over the next
//!   128 bytes and adds those (Gopal and others, "Fast CRC Computation for Generic Polynomials Using
//!   PCLMULQDQ", Intel 2009, with four registers of 256 bits).
//! - [`fold_by_shifts`] is for processors that do this slowly.

use catchment_roce::wire;

/// Bytes that one step of [`fold`] folds.
pub(super) const STEP_BYTES: usize = 128;
/// Bytes that one step of [`fold_by_shifts`] folds.
pub(super) const WORD_BYTES: usize = 16;
/// Steps of [`fold_by_shifts`] that have to be, at least.
pub(super) const MIN_WORDS: usize = 3;

/// Whether this processor can do [`fold`].
#[inline]
pub(super) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Folds `steps` times 128 bytes, at least one, that follow a message which left `register` (bits
/// reversed, not inverted). The number leaves from register 0 what message and bytes leave.
///
/// # Safety
/// The bytes are mapped, and [`is_available`] said so.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,vpclmulqdq")]
pub(super) unsafe fn fold(register: u32, from: *const u8, steps: usize) -> [u128; 1] {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_set_epi64x, _mm_xor_si128,
        _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_clmulepi64_epi128,
        _mm256_extracti128_si256, _mm256_xor_si256, _mm256_zextsi128_si256,
    };
    #[repr(C, packed)]
    struct Unaligned(__m256i);

    // SAFETY of all loads: the caller says that 128 bytes for each step are mapped; volatile, since
    // others may write there.
    let load = |step: usize, part: usize| -> __m256i {
        // SAFETY: as above.
        unsafe {
            let at = from.add(step * STEP_BYTES + part * 32);
            std::ptr::read_volatile(at.cast::<Unaligned>()).0
        }
    };
    let mut sums: [__m256i; 4] = std::array::from_fn(|part| load(0, part));
    let register = _mm256_zextsi128_si256(_mm_cvtsi32_si128(register.cast_signed()));
    sums[0] = _mm256_xor_si256(sums[0], register);
    let far = _mm_set_epi64x(FAR[1], FAR[0]);
    let far = _mm256_broadcastsi128_si256(far);
    for step in 1..steps {
        for (part, sum) in sums.iter_mut().enumerate() {
            let low = _mm256_clmulepi64_epi128::<0x00>(*sum, far);
            let high = _mm256_clmulepi64_epi128::<0x11>(*sum, far);
            *sum = _mm256_xor_si256(_mm256_xor_si256(low, high), load(step, part));
        }
    }
    let near = _mm_set_epi64x(NEAR[1], NEAR[0]);
    let append = |sum: __m128i, next: __m128i| {
        let low = _mm_clmulepi64_si128::<0x00>(sum, near);
        let high = _mm_clmulepi64_si128::<0x11>(sum, near);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    };
    let mut all = _mm256_castsi256_si128(sums[0]);
    all = append(all, _mm256_extracti128_si256::<1>(sums[0]));
    for sum in &sums[1..] {
        all = append(all, _mm256_castsi256_si128(*sum));
        all = append(all, _mm256_extracti128_si256::<1>(*sum));
    }
    // SAFETY: both are 16 bytes without padding.
    unsafe { std::mem::transmute::<__m128i, [u128; 1]>(all) }
}

/// Never called: [`is_available`] says no.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn fold(_: u32, _: *const u8, _: usize) -> [u128; 1] {
    unreachable!("no processor of this kind can fold")
}

/// Folds `words` times 16 bytes, at least three times, as [`fold`] does. A function of its own, so
/// that a profile tells it from the work of the engine.
///
/// # Safety
/// The bytes are mapped.
#[inline(never)]
pub(super) unsafe fn fold_by_shifts(register: u32, from: *const u8, words: usize) -> [u128; 3] {
    #[repr(C, packed)]
    struct Unaligned(u128);

    let load = |word: usize| -> u128 {
        // SAFETY: the caller says that 16 bytes for each word are mapped; volatile, since others
        // may write there.
        let number = unsafe {
            let at = from.add(word * WORD_BYTES);
            std::ptr::read_volatile(at.cast::<Unaligned>()).0
        };
        u128::from_le(number)
    };
    let body = words - MIN_WORDS;
    let last = [load(body), load(body + 1), load(body + 2)];
    wire::fold_by_shifts(register, (0..body).map(load), last)
}

/// What the lower and the upper half of 128 bits are multiplied with to move them over the bytes of
/// one step.
#[cfg(target_arch = "x86_64")]
const FAR: [i64; 2] = over_bits(STEP_BYTES * 8);
/// The same over 16 bytes.
#[cfg(target_arch = "x86_64")]
const NEAR: [i64; 2] = over_bits(128);

#[cfg(target_arch = "x86_64")]
const fn over_bits(bits: usize) -> [i64; 2] {
    [power(bits + 32), power(bits - 32)]
}

/// x^exponent modulo the polynomial of CRC-32, highest power in the lowest bit; one bit to the left,
/// as the product of two such numbers needs.
#[cfg(target_arch = "x86_64")]
const fn power(exponent: usize) -> i64 {
    let mut value: u32 = 1 << 31;
    let mut left = exponent;
    while left > 0 {
        value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
        left -= 1;
    }
    (value as i64) << 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_roce::wire::{CrcWay, Icrc, NetHeader};
    use std::net::Ipv6Addr;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn constants_are_those_that_everybody_uses() {
        assert_eq!(over_bits(512), [0x1_5444_2bd4, 0x1_c6e4_1596]);
        assert_eq!(NEAR, [0x1_7519_97d0, 0x0_ccaa_009e]);
    }

    /// Compares with the ordinary way what a fold gives from a place with so many of its steps.
    fn assert_same<const N: usize>(
        step_bytes: usize,
        pieces: &[(usize, usize)],
        fold: impl Fn(u32, *const u8, usize) -> [u128; N],
    ) {
        let bytes: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let net = NetHeader::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, 7);
        for (way, &(start, steps)) in CrcWay::ALL
            .into_iter()
            .flat_map(|way| pieces.iter().map(move |piece| (way, piece)))
        {
            let piece = &bytes[start..start + steps * step_bytes];
            let mut expected = Icrc::begin_by(way, &net, 100);
            expected.headers(&bytes[..28]);
            let mut folded = expected.clone();
            expected.payload(piece);
            folded.payload_folded(|register| fold(register, piece.as_ptr(), steps));
            for icrc in [&mut expected, &mut folded] {
                icrc.payload(&bytes[..start]);
                icrc.pad(3);
            }
            assert_eq!(folded.finish(), expected.finish(), "{start} {steps}");
        }
    }

    #[test]
    fn folding_gives_what_the_ordinary_way_gives() {
        if !is_available() {
            // Then nobody calls it.
            return;
        }
        let pieces = [(0, 1), (1, 2), (13, 8), (31, 32), (64, 38)];
        assert_same(STEP_BYTES, &pieces, |register, from, steps| {
            // SAFETY: the piece has that many bytes, and it is available.
            unsafe { fold(register, from, steps) }
        });
    }

    #[test]
    fn folding_by_shifts_gives_what_the_ordinary_way_gives() {
        let pieces = [(0, 3), (1, 4), (13, 5), (31, 64), (64, 256), (7, 300)];
        assert_same(WORD_BYTES, &pieces, |register, from, words| {
            // SAFETY: the piece has that many bytes.
            unsafe { fold_by_shifts(register, from, words) }
        });
    }
}
