//! Bytes that cases send and compare.
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
}
