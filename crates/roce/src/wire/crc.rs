//! CRC-32 in two ways that give the same: by the instructions of the processor, or by tables.
//!
//! Where a processor is emulated, an instruction that multiplies polynomials can take longer than
//! table look-ups. Which way is faster only a clock tells: who has one chooses.

use crc32fast::Hasher;

/// How a CRC is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcWay {
    /// By carry-less multiplication, where the processor has it.
    #[default]
    Instructions,
    /// By sixteen tables (Kounavis and Berry, "A Systematic Approach to Building High Performance,
    /// Software-Based, CRC Generators", 2005): 16 bytes a step.
    Tables,
}

impl CrcWay {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Instructions, Self::Tables];

    /// The CRC-32 of zlib and Ethernet.
    #[must_use]
    pub fn compute(self, bytes: &[u8]) -> u32 {
        let mut crc = Crc::new(self);
        crc.update(bytes);
        crc.finish()
    }
}

/// A CRC-32 in the making.
#[derive(Clone, Debug)]
pub(super) enum Crc {
    Instructions(Hasher),
    /// The register: lowest bit first, not inverted.
    Tables(u32),
}

impl Crc {
    #[inline]
    pub(super) fn new(way: CrcWay) -> Self {
        match way {
            CrcWay::Instructions => Self::Instructions(Hasher::new()),
            CrcWay::Tables => Self::Tables(!0),
        }
    }

    #[inline]
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Instructions(hasher) => hasher.update(bytes),
            Self::Tables(register) => *register = look_up(*register, bytes),
        }
    }

    /// The same with 16 bytes that leave, from register 0, what the next piece leaves from the
    /// register that `fold` gets.
    #[inline]
    pub(super) fn update_folded(&mut self, fold: impl FnOnce(u32) -> [u8; 16]) {
        match self {
            Self::Instructions(hasher) => {
                let register = !std::mem::take(hasher).finalize();
                *hasher = Hasher::new_with_initial(!0);
                hasher.update(&fold(register));
            }
            Self::Tables(register) => *register = look_up(0, &fold(*register)),
        }
    }

    #[inline]
    pub(super) fn finish(self) -> u32 {
        match self {
            Self::Instructions(hasher) => hasher.finalize(),
            Self::Tables(register) => !register,
        }
    }
}

const STEP_BYTES: usize = 16;

/// What a byte leaves that so many others follow.
static TABLES: [[u32; 256]; STEP_BYTES] = tables();

const fn tables() -> [[u32; 256]; STEP_BYTES] {
    let mut tables = [[0; 256]; STEP_BYTES];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut behind = 1;
    while behind < STEP_BYTES {
        let mut byte = 0;
        while byte < 256 {
            let value = tables[behind - 1][byte];
            tables[behind][byte] = (value >> 8) ^ tables[0][(value & 0xff) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
}

fn look_up(mut register: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
    for step in steps {
        let step = u128::from_le_bytes(*step);
        // Two loads instead of sixteen: an emulated one costs as much as a look-up.
        let (low, high) = (step as u64 ^ u64::from(register), (step >> 64) as u64);
        register = eight(low, 8) ^ eight(high, 0);
    }
    for byte in rest {
        let at = (register as u8 ^ byte) as usize;
        register = (register >> 8) ^ TABLES[0][at];
    }
    register
}

/// What eight bytes leave that so many others follow.
#[inline]
fn eight(bytes: u64, behind: usize) -> u32 {
    let bytes = bytes.to_le_bytes();
    let look = |at: usize| TABLES[behind + 7 - at][usize::from(bytes[at])];
    look(0) ^ look(1) ^ look(2) ^ look(3) ^ look(4) ^ look(5) ^ look(6) ^ look(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_whatever_the_pieces() {
        assert_eq!(CrcWay::Tables.compute(b"123456789"), 0xcbf4_3926);
        let bytes: Vec<u8> = (0..300u32).map(|i| ((i * i) >> 3) as u8).collect();
        for end in 0..bytes.len() {
            let whole = CrcWay::Instructions.compute(&bytes[..end]);
            assert_eq!(CrcWay::Tables.compute(&bytes[..end]), whole, "{end}");
            let mut pieces = Crc::new(CrcWay::Tables);
            let (first, second) = bytes[..end].split_at(end / 3);
            pieces.update(first);
            pieces.update(second);
            assert_eq!(pieces.finish(), whole, "{end} in two");
        }
    }
}
