//! CRC-32C, written again: a check that used the code under test would agree with its faults.

/// The polynomial of Castagnoli, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        table[index] = entry(index as u32);
        index += 1;
    }
    table
}

const fn entry(byte: u32) -> u32 {
    let mut value = byte;
    let mut bit = 0;
    while bit < 8 {
        value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
        bit += 1;
    }
    value
}

/// The CRC-32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let step =
        |value: u32, byte: &u8| (value >> 8) ^ TABLE[((value ^ u32::from(*byte)) & 255) as usize];
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_values_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&[]), 0);
    }
}
