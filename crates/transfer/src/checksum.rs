//! CRC32C of registered memory.
use catchment_verbs::mem::{MemError, VolatileSlice};

/// Computes the CRC32C of the bytes.
pub fn crc32c_of(memory: &VolatileSlice<'_>) -> u32 {
    let mut crc = 0;
    memory.for_each_chunk(|chunk| crc = crc32c::crc32c_append(crc, chunk));
    crc
}

/// Bytes that stay in a first-level cache between copying and checksumming.
const PIECE_BYTES: usize = 8192;

/// Copies the bytes out and computes their CRC32C in the same pass. The checksum is that of the
/// copy, which no peer can change.
///
/// # Errors
/// [`MemError::OutOfBounds`] if `out` is longer than the memory.
pub(crate) fn copy_with_crc(memory: &VolatileSlice<'_>, out: &mut [u8]) -> Result<u32, MemError> {
    memory.subslice(0, out.len())?;
    let mut crc = 0;
    for (i, piece) in out.chunks_mut(PIECE_BYTES).enumerate() {
        memory.read_at(i * PIECE_BYTES, piece)?;
        crc = crc32c::crc32c_append(crc, piece);
    }
    Ok(crc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_verbs::mem::{Region, RegionOptions};

    #[test]
    fn both_ways_give_the_standard_value() {
        let region = Region::alloc(20_000, RegionOptions::default()).unwrap();
        region.whole().write_at(0, b"123456789").unwrap();
        assert_eq!(crc32c_of(&region.slice(0, 9).unwrap()), 0xe306_9283);
        let mut out = vec![0; 20_000];
        assert_eq!(copy_with_crc(&region.whole(), &mut out).unwrap(), crc32c::crc32c(&out));
        assert_eq!(&out[..9], b"123456789");
        assert!(copy_with_crc(&region.slice(0, 9).unwrap(), &mut out).is_err());
    }
}
