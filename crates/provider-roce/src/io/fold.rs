//! CRC-32 over memory that others may write meanwhile, without copying it first.
//!
//! Library functions need a `&[u8]`, which no one may change. So the bytes of what is sent are read
//! here, with volatile loads that feed the arithmetic directly: a number that others change
//! meanwhile yields a wrong checksum, and nothing else. Headers are few bytes, for which a call of
//! a library function takes long: they lead, as if the piece began with them. What is received lies
//! in memory of our own, and goes through the library where that is faster.
//!
//! [`fold`] multiplies without carries: that moves the polynomial of what was read over the next
//! 128 bytes and adds those (Gopal and others, "Fast CRC Computation for Generic Polynomials Using
//! PCLMULQDQ", Intel 2009, with four registers of 256 bits), or over 256 bytes with registers of 512
//! bits ([`fold_wide`]). Measured: `docs/concept/roce-engine.md`. A processor without that
//! instruction shifts ([`fold_by_shifts`]).
use catchment_roce::wire::icrc::LEAD_BYTES;
use catchment_roce::wire::{Icrc, fold_by_shifts, has_crc_instructions};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_cvtsi128_si32, _mm_set_epi32, _mm_set_epi64x,
    _mm_srli_si128, _mm_xor_si128,
};

#[cfg(target_arch = "x86_64")]
const STEP_BYTES: usize = 128;
/// Bytes that a shift takes at a time, and words that there are at least.
const WORD_BYTES: usize = 16;
const LAST_WORDS: usize = 3;

/// How bytes are folded where they lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fold {
    /// By carry-less multiplication, with registers of 512 bits.
    #[cfg(target_arch = "x86_64")]
    MultiplyWide,
    /// The same with registers of 256 bits.
    #[cfg(target_arch = "x86_64")]
    Multiply,
    /// By shifts, on a processor without.
    Shift,
    /// Not at all: `crc32fast` is faster, over copies.
    Copy,
}

impl Fold {
    #[inline]
    pub(super) fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_available() {
            return if is_wide() { Self::MultiplyWide } else { Self::Multiply };
        }
        if has_crc_instructions() { Self::Copy } else { Self::Shift }
    }

    /// Returns how to fold slices, which the library takes as well: a way that is faster, or not at all.
    #[inline]
    pub(super) fn of_slices() -> Self {
        match Self::new() {
            #[cfg(target_arch = "x86_64")]
            Self::Multiply => Self::Copy,
            Self::Shift => Self::Copy,
            other => other,
        }
    }

    /// Returns how many bytes of a piece are folded, the first ones.
    #[inline]
    pub(super) fn takes(self, bytes: usize) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::MultiplyWide | Self::Multiply => bytes - bytes % STEP_BYTES,
            Self::Shift if bytes >= LAST_WORDS * WORD_BYTES => bytes - bytes % WORD_BYTES,
            Self::Shift | Self::Copy => 0,
        }
    }

    /// Adds headers and the first bytes of the payload; returns whether it did.
    ///
    /// # Safety
    /// The bytes are mapped, and as many as [`Fold::takes`] returned.
    #[inline]
    pub(super) unsafe fn headers(
        self,
        icrc: &mut Icrc,
        headers: &[u8],
        from: *const u8,
        bytes: usize,
    ) -> bool {
        // SAFETY: the caller's.
        bytes > 0
            && icrc.headers_folded(headers, |register, lead| unsafe {
                self.fold(register, lead, from, bytes)
            })
    }

    /// Adds bytes of the payload.
    ///
    /// # Safety
    /// As [`Fold::headers`].
    #[inline]
    pub(super) unsafe fn payload(self, icrc: &mut Icrc, from: *const u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the caller's.
            icrc.payload_folded(|register, lead| unsafe { self.fold(register, lead, from, bytes) });
        }
    }

    /// # Safety
    /// As [`Fold::headers`], and some bytes.
    #[inline]
    unsafe fn fold(
        self,
        register: u32,
        lead: &[u8; LEAD_BYTES],
        from: *const u8,
        bytes: usize,
    ) -> u32 {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's; only a processor that can is asked to.
            Self::MultiplyWide => unsafe { fold_wide(register, lead, from, bytes / STEP_BYTES) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Multiply => unsafe { fold(register, lead, from, bytes / STEP_BYTES) },
            // SAFETY: the caller's.
            Self::Shift | Self::Copy => unsafe { shift(register, lead, from, bytes / WORD_BYTES) },
        }
    }
}

/// Shifts `words` times 16 bytes, at least three times: see [`fold_by_shifts`]. A function of its own, so
/// that a profile tells it from the work of the engine.
///
/// # Safety
/// The bytes are mapped.
#[inline(never)]
unsafe fn shift(register: u32, lead: &[u8; LEAD_BYTES], from: *const u8, words: usize) -> u32 {
    #[repr(C, packed)]
    struct Unaligned(u128);

    let load = |word: usize| {
        // SAFETY: the caller says that 16 bytes for each word are mapped; volatile, since others may
        // write there.
        let number = unsafe {
            let at = from.add(word * WORD_BYTES);
            std::ptr::read_volatile(at.cast::<Unaligned>()).0
        };
        u128::from_le(number)
    };
    let body = words - LAST_WORDS;
    let last = std::array::from_fn(|at| load(body + at));
    fold_by_shifts(register, lead, (0..body).map(load), last)
}

/// Returns whether this processor can do [`fold`].
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_available() -> bool {
    is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2")
}

/// Returns whether it can do [`fold_wide`] as well.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_wide() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Folds `steps` times 128 bytes, at least one: see [`Icrc::payload_folded`].
///
/// # Safety
/// The bytes are mapped, and [`is_available`] said so.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,vpclmulqdq")]
unsafe fn fold(register: u32, lead: &[u8; LEAD_BYTES], from: *const u8, steps: usize) -> u32 {
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_broadcastsi128_si256, _mm256_castsi256_si128,
        _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_xor_si256,
        _mm256_zextsi128_si256,
    };
    #[repr(C, packed)]
    struct Unaligned(__m256i);

    // SAFETY of all loads: the caller guarantees that 128 bytes for each step are mapped; volatile,
    // since others may write there.
    let load = |step: usize, part: usize| -> __m256i {
        // SAFETY: as above.
        unsafe {
            let at = from.add(step * STEP_BYTES + part * 32);
            std::ptr::read_volatile(at.cast::<Unaligned>()).0
        }
    };
    let factor = |over: [i64; 2]| _mm256_broadcastsi128_si256(_mm_set_epi64x(over[1], over[0]));
    let moved = |sum: __m256i, far: __m256i, next: __m256i| {
        let low = _mm256_clmulepi64_epi128::<0x00>(sum, far);
        let high = _mm256_clmulepi64_epi128::<0x11>(sum, far);
        _mm256_xor_si256(_mm256_xor_si256(low, high), next)
    };
    let far = factor(OVER_128);
    let mut sums: [__m256i; 4] = std::array::from_fn(|part| load(0, part));
    let register = _mm256_zextsi128_si256(_mm_cvtsi32_si128(register.cast_signed()));
    sums[0] = _mm256_xor_si256(sums[0], register);
    // What leads is the end of a step before the first one.
    // SAFETY: both are 32 bytes without padding.
    let lead = unsafe { std::mem::transmute::<[u8; LEAD_BYTES], __m256i>(*lead) };
    sums[3] = moved(lead, far, sums[3]);
    for step in 1..steps {
        for (part, sum) in sums.iter_mut().enumerate() {
            *sum = moved(*sum, far, load(step, part));
        }
    }
    let near = factor(OVER_32);
    let all = sums.into_iter().reduce(|sum, next| moved(sum, near, next)).expect("there are four");
    let first = _mm256_castsi256_si128(all);
    reduce(append(first, _mm256_extracti128_si256::<1>(all)))
}

/// As [`fold`], 256 bytes at a time, and 128 before them if they are left over.
///
/// # Safety
/// The bytes are mapped; [`is_available`] and [`is_wide`] said so.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,vpclmulqdq")]
unsafe fn fold_wide(register: u32, lead: &[u8; LEAD_BYTES], from: *const u8, steps: usize) -> u32 {
    use std::arch::x86_64::{
        __m512i, _mm_cvtsi32_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128,
        _mm512_extracti32x4_epi32, _mm512_setzero_si512, _mm512_ternarylogic_epi64,
        _mm512_xor_si512, _mm512_zextsi128_si512,
    };
    #[repr(C, packed)]
    struct Unaligned(__m512i);
    /// The exclusive or of three.
    const XOR: i32 = 0x96;

    // SAFETY of all loads: the caller guarantees that 128 bytes for each step are mapped; volatile,
    // since others may write there.
    let load = |at: usize| -> __m512i {
        // SAFETY: as above.
        unsafe { std::ptr::read_volatile(from.add(at).cast::<Unaligned>()).0 }
    };
    let factor = |over: [i64; 2]| _mm512_broadcast_i32x4(_mm_set_epi64x(over[1], over[0]));
    let moved = |sum: __m512i, far: __m512i, next: __m512i| {
        let low = _mm512_clmulepi64_epi128::<0x00>(sum, far);
        let high = _mm512_clmulepi64_epi128::<0x11>(sum, far);
        _mm512_ternarylogic_epi64::<XOR>(low, high, next)
    };
    let zero = _mm512_setzero_si512();
    let mut register = _mm512_zextsi128_si512(_mm_cvtsi32_si128(register.cast_signed()));
    // What leads is the end of a step before the first one.
    let mut place = [0; 64];
    place[64 - LEAD_BYTES..].copy_from_slice(lead);
    // SAFETY: both are 64 bytes without padding.
    let mut before = [zero, unsafe { std::mem::transmute::<[u8; 64], __m512i>(place) }];
    let mut at = 0;
    if !steps.is_multiple_of(2) {
        before =
            [_mm512_xor_si512(load(0), register), moved(before[1], factor(OVER_128), load(64))];
        register = zero;
        at = STEP_BYTES;
    }
    let far = factor(OVER_256);
    let mut sums = [zero, zero, before[0], before[1]];
    while at < steps * STEP_BYTES {
        for (part, sum) in sums.iter_mut().enumerate() {
            *sum = moved(*sum, far, load(at + part * 64));
        }
        sums[0] = _mm512_xor_si512(sums[0], register);
        register = zero;
        at += 2 * STEP_BYTES;
    }
    let near = factor(OVER_64);
    let all = sums.into_iter().reduce(|sum, next| moved(sum, near, next)).expect("there are four");
    let mut sum = _mm512_extracti32x4_epi32::<0>(all);
    sum = append(sum, _mm512_extracti32x4_epi32::<1>(all));
    sum = append(sum, _mm512_extracti32x4_epi32::<2>(all));
    reduce(append(sum, _mm512_extracti32x4_epi32::<3>(all)))
}

/// Moves 16 bytes over the next 16, and adds those.
///
/// # Safety
/// The processor has AVX2 and VPCLMULQDQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn append(sum: __m128i, next: __m128i) -> __m128i {
    let near = _mm_set_epi64x(OVER_16[1], OVER_16[0]);
    let low = _mm_clmulepi64_si128::<0x00>(sum, near);
    let high = _mm_clmulepi64_si128::<0x11>(sum, near);
    _mm_xor_si128(_mm_xor_si128(low, high), next)
}

/// Returns the register that 16 bytes leave from register 0 (Barrett's reduction; the paper's
/// figure 12).
///
/// # Safety
/// The processor has AVX2 and VPCLMULQDQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn reduce(bytes: __m128i) -> u32 {
    let low = _mm_set_epi32(0, 0, 0, !0);
    let near = _mm_set_epi64x(power(64), OVER_16[1]);
    // To 12 bytes, then to 8, of which the first 4 are to be divided.
    let half = _mm_clmulepi64_si128::<0x00>(bytes, near);
    let bytes = _mm_xor_si128(half, _mm_srli_si128::<8>(bytes));
    let part = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(bytes, low), near);
    let bytes = _mm_xor_si128(part, _mm_srli_si128::<4>(bytes));
    let divisor = _mm_set_epi64x(QUOTIENT, POLYNOMIAL);
    let times = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(bytes, low), divisor);
    let multiple = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(times, low), divisor);
    let rest = _mm_xor_si128(bytes, multiple);
    _mm_cvtsi128_si32(_mm_srli_si128::<4>(rest)).cast_unsigned()
}

/// The multipliers of the lower and the upper half of 128 bits that move them by this many bytes.
#[cfg(target_arch = "x86_64")]
const OVER_256: [i64; 2] = over_bytes(256);
#[cfg(target_arch = "x86_64")]
const OVER_128: [i64; 2] = over_bytes(128);
#[cfg(target_arch = "x86_64")]
const OVER_64: [i64; 2] = over_bytes(64);
#[cfg(target_arch = "x86_64")]
const OVER_32: [i64; 2] = over_bytes(32);
#[cfg(target_arch = "x86_64")]
const OVER_16: [i64; 2] = over_bytes(16);

/// The polynomial, lowest power in the highest of 33 bits.
#[cfg(target_arch = "x86_64")]
const POLYNOMIAL: i64 = 0x1_db71_0641;
/// x^64 divided by the polynomial, without rest, in the same order of bits.
#[cfg(target_arch = "x86_64")]
const QUOTIENT: i64 = 0x1_f701_1641;

#[cfg(target_arch = "x86_64")]
const fn over_bytes(bytes: usize) -> [i64; 2] {
    [power(8 * bytes + 32), power(8 * bytes - 32)]
}

/// x^exponent modulo the polynomial of CRC-32, highest power in the lowest bit; one bit to the
/// left, as the product of two such numbers needs.
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
    use catchment_roce::wire::NetHeader;
    use std::net::Ipv6Addr;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn constants_are_those_that_everybody_uses() {
        assert_eq!(OVER_64, [0x1_5444_2bd4, 0x1_c6e4_1596]);
        assert_eq!(OVER_16, [0x1_7519_97d0, 0x0_ccaa_009e]);
    }

    /// Compares folding with the ordinary computation, for pieces that begin at, and have this many
    /// bytes, behind headers of some lengths, and in the middle of a payload.
    fn assert_same(fold: Fold, pieces: &[(usize, usize)]) {
        let bytes: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let net = NetHeader::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, 7);
        for &(start, length) in pieces {
            assert_eq!(fold.takes(length), length);
            let piece = &bytes[start..start + length];
            for header_bytes in [12, 16, 28, 32, 33, 60] {
                let headers = &bytes[100..100 + header_bytes];
                let mut expected = Icrc::begin(&net, 100);
                let mut folded = expected;
                expected.headers(headers);
                expected.payload(piece);
                // SAFETY: all the bytes of a slice.
                let led =
                    unsafe { fold.headers(&mut folded, headers, piece.as_ptr(), piece.len()) };
                assert_eq!(led, header_bytes <= LEAD_BYTES);
                if !led {
                    folded.headers(headers);
                    folded.payload(&piece[..8]);
                    expected = folded;
                    expected.payload(piece);
                    // SAFETY: as above.
                    unsafe { fold.payload(&mut folded, piece.as_ptr(), piece.len()) };
                }
                for icrc in [&mut expected, &mut folded] {
                    icrc.payload(&bytes[..start]);
                    icrc.pad(3);
                }
                assert_eq!(folded.finish(), expected.finish(), "{start} {length}");
            }
        }
    }

    #[test]
    fn folding_gives_what_the_ordinary_way_gives() {
        let pieces = [(0, 128), (1, 256), (9, 384), (13, 1024), (31, 4096), (64, 4864)];
        // Not called where the processor lacks it.
        #[cfg(target_arch = "x86_64")]
        if is_available() {
            assert_same(Fold::Multiply, &pieces);
            if is_wide() {
                assert_same(Fold::MultiplyWide, &pieces);
            }
        }
        assert_same(Fold::Shift, &pieces);
        assert_same(Fold::Shift, &[(0, 48), (1, 64), (13, 80), (7, 4800)]);
    }
}
