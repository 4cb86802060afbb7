//! Bytes that cases send and look for.
use anyhow::{Result, bail, ensure};
pub(crate) use catchment_conformance::pattern;

pub(crate) fn same_bytes(seen: &[u8], expected: &[u8]) -> Result<()> {
    let (is, should) = (seen.len(), expected.len());
    ensure!(is == should, "{is} bytes instead of {should}");
    if let Some(at) = (0..is).find(|at| seen[*at] != expected[*at]) {
        let (is, should) = (seen[at], expected[at]);
        bail!("byte {at} is {is:#04x}, expected {should:#04x}");
    }
    Ok(())
}

pub(crate) fn to_hex(data: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    data.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let bytes = digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]));
    bytes.collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_between_packets_and_seeds() {
        let long = pattern(1, 8192);
        assert_ne!(long[..4096], long[4096..]);
        assert_ne!(long[..256], long[256..512]);
        assert_ne!(long, pattern(2, 8192));
        assert!(same_bytes(&long, &pattern(1, 8192)).is_ok());
        let error = same_bytes(&long[..9], &pattern(2, 9)).unwrap_err();
        assert!(error.to_string().starts_with("byte 0 is"), "{error}");
    }

    #[test]
    fn memory_travels_as_hexadecimal_digits() {
        assert_eq!(to_hex(&[0, 0x9f, 0xff]), "009fff");
        assert_eq!(from_hex("009fff").as_deref(), Some(&[0, 0x9f, 0xff][..]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("0g"), None);
    }
}
