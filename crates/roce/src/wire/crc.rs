//! CRC-32 of zlib and Ethernet, with an accessible register.
use crc32fast::Hasher;

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
        let mut hasher = Hasher::new_with_initial(!self.register);
        hasher.update(bytes);
        self.register = !hasher.finalize();
    }

    #[inline]
    pub(super) fn finish(self) -> u32 {
        !self.register
    }
}

/// Returns the register after appending this many zero bits to a message that left `register`.
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

    #[test]
    fn zero_bits_leave_what_zero_bytes_leave() {
        let mut crc = Crc::new();
        crc.update(&[0x5a; 7]);
        let register = crc.register;
        crc.update(&[0; 9]);
        assert_eq!(zeros(register, 72), crc.register);
    }
}
