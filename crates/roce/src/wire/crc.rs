//! CRC-32 in two ways that give the same: by the instructions of the processor, or by shifts.
//!
//! Where a processor is emulated, an instruction that multiplies polynomials takes longer than
//! many shifts. Which way is faster only a clock tells: who has one chooses.
//!
//! Shifts need a multiple of the polynomial that has few terms, so that a bit can be replaced by
//! few later ones (Russell, "Chorba: A novel CRC32 implementation", arXiv 2412.16398, 2024). What
//! cannot be moved on any more, and what is short, is looked up in sixteen tables (Kounavis and
//! Berry, "A Systematic Approach to Building High Performance, Software-Based, CRC Generators",
//! 2005). An emulated load costs as much as about ten shifts, so tables alone are slow there.

use super::icrc::LEAD_BYTES;
use crc32fast::Hasher;

/// How a CRC is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcWay {
    /// By carry-less multiplication, where the processor has it.
    #[default]
    Instructions,
    /// By shifts and exclusive-ors, 16 bytes a step.
    Shifts,
}

impl CrcWay {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Instructions, Self::Shifts];

    /// The CRC-32 of zlib and Ethernet.
    #[must_use]
    pub fn compute(self, bytes: &[u8]) -> u32 {
        let mut crc = Crc::new(self);
        crc.update(bytes);
        crc.finish()
    }
}

/// A CRC-32 in the making.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc {
    way: CrcWay,
    /// Lowest bit first, not inverted.
    pub(super) register: u32,
}

impl Crc {
    #[inline]
    pub(super) fn new(way: CrcWay) -> Self {
        Self { way, register: !0 }
    }

    #[inline]
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.register = match self.way {
            CrcWay::Instructions => {
                let mut hasher = Hasher::new_with_initial(!self.register);
                hasher.update(bytes);
                !hasher.finalize()
            }
            CrcWay::Shifts => shift(self.register, bytes),
        };
    }

    #[inline]
    pub(super) fn finish(self) -> u32 {
        !self.register
    }
}

/// A bit leaves what four bits leave together that come so many bits later.
const LATER: [u32; 4] = [145, 183, 211, 300];

const _: () = {
    let [a, b, c, d] = LATER;
    let four = zeros(1, d - a) ^ zeros(1, d - b) ^ zeros(1, d - c) ^ zeros(1, 0);
    assert!(zeros(1, d) == four);
};

/// What is left when so many zero bits follow a message that left `register`.
pub(super) const fn zeros(mut register: u32, bits: u32) -> u32 {
    let mut bit = 0;
    while bit < bits {
        register = (register >> 1) ^ (0xedb8_8320 & (register & 1).wrapping_neg());
        bit += 1;
    }
    register
}

/// Numbers of 16 bytes into which one of them is moved: nothing is left of it after so many.
const REACH: usize = 3;
const WORD_BYTES: usize = 16;
type Word = [u8; WORD_BYTES];

/// Little-endian numbers.
#[inline]
fn numbers(words: &[Word]) -> impl Iterator<Item = u128> {
    words.iter().copied().map(u128::from_le_bytes)
}

#[inline]
fn shift(register: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks();
    match words.split_last_chunk() {
        Some((body, last)) => shift_long(register, body, last, rest),
        None => look_up_rest(look_up(register, numbers(words)), rest),
    }
}

/// A function of its own, so that short pieces need not save its many registers.
#[inline(never)]
fn shift_long(register: u32, body: &[Word], last: &[Word; REACH], rest: &[u8]) -> u32 {
    let last = last.map(u128::from_le_bytes);
    let sums = [u128::from(register), 0, 0];
    look_up_rest(fold_on(sums, numbers(body), last), rest)
}

/// For [`Icrc::payload_folded`](super::Icrc::payload_folded), of which it gets the arguments. The
/// piece is given as the little-endian numbers of its bytes, the last three apart.
#[inline]
pub fn fold_by_shifts(
    register: u32,
    lead: &[u8; LEAD_BYTES],
    body: impl IntoIterator<Item = u128>,
    last: [u128; REACH],
) -> u32 {
    let (words, _) = lead.as_chunks();
    let mut sums = numbers(words).fold([0; REACH], move_on);
    sums[0] ^= u128::from(register);
    fold_on(sums, body, last)
}

/// What a piece leaves, to the numbers of which `sums` are to be added.
#[inline]
fn fold_on(
    mut sums: [u128; REACH],
    body: impl IntoIterator<Item = u128>,
    last: [u128; REACH],
) -> u32 {
    for word in body {
        sums = move_on(sums, word);
    }
    let left: [u128; REACH] = std::array::from_fn(|at| sums[at] ^ last[at]);
    look_up(0, left)
}

/// Adds a number, and moves it on: what is to be added to the next ones.
#[inline]
fn move_on(sums: [u128; REACH], word: u128) -> [u128; REACH] {
    let [a, b, c, d] = LATER;
    let word = word ^ sums[0];
    [
        sums[1] ^ (word << (a - 128)) ^ (word << (b - 128)) ^ (word << (c - 128)),
        sums[2]
            ^ (word >> (256 - a))
            ^ (word >> (256 - b))
            ^ (word >> (256 - c))
            ^ (word << (d - 256)),
        word >> (384 - d),
    ]
}

/// What a byte leaves that so many others follow.
static TABLES: [[u32; 256]; WORD_BYTES] = tables();

const fn tables() -> [[u32; 256]; WORD_BYTES] {
    let mut tables = [[0; 256]; WORD_BYTES];
    let mut behind = 0;
    while behind < WORD_BYTES {
        let mut byte = 0;
        while byte < 256 {
            let value = if behind == 0 {
                byte as u32
            } else {
                tables[behind - 1][byte]
            };
            tables[behind][byte] = zeros(value, 8);
            byte += 1;
        }
        behind += 1;
    }
    tables
}

#[inline]
fn look_up(mut register: u32, words: impl IntoIterator<Item = u128>) -> u32 {
    for word in words {
        // Two loads instead of sixteen: an emulated one costs as much as a look-up.
        let (low, high) = (word as u64 ^ u64::from(register), (word >> 64) as u64);
        register = leave(low.to_le_bytes(), 8) ^ leave(high.to_le_bytes(), 0);
    }
    register
}

/// Looks up less than 16 bytes. Pieces of packets are multiples of four bytes, mostly.
#[inline]
fn look_up_rest(mut register: u32, mut rest: &[u8]) -> u32 {
    if let Some((word, behind)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*word) ^ u64::from(register);
        register = leave(word.to_le_bytes(), 0);
        rest = behind;
    }
    if let Some((word, behind)) = rest.split_first_chunk() {
        register = leave((u32::from_le_bytes(*word) ^ register).to_le_bytes(), 0);
        rest = behind;
    }
    for byte in rest {
        register = (register >> 8) ^ leave([register as u8 ^ byte], 0);
    }
    register
}

/// What these bytes leave that so many others follow.
#[inline]
fn leave<const N: usize>(bytes: [u8; N], behind: usize) -> u32 {
    let mut register = 0;
    for (at, byte) in bytes.into_iter().enumerate() {
        register ^= TABLES[behind + N - 1 - at][usize::from(byte)];
    }
    register
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_ways_give_the_same_whatever_the_length() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for way in CrcWay::ALL {
            assert_eq!(way.compute(b"123456789"), 0xcbf4_3926, "{way:?}");
        }
        for end in (0..=600).chain([1024, 4095, 4096, 4200, 5000]) {
            let [whole, shifted] = CrcWay::ALL.map(|way| way.compute(&bytes[..end]));
            assert_eq!(shifted, whole, "{end}");
        }
    }

    proptest! {
        #[test]
        fn both_ways_give_the_same_whatever_the_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
        ) {
            let whole = CrcWay::Instructions.compute(&pieces.concat());
            let mut crc = Crc::new(CrcWay::Shifts);
            for piece in &pieces {
                crc.update(piece);
            }
            prop_assert_eq!(crc.finish(), whole);
        }
    }
}
