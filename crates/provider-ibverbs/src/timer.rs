//! Times as the standard codes them in a few bits.
use std::time::Duration;

/// Waits of a receiver without a posted receive, in units of 10 µs (IBTA table 45).
const RNR: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The code of the shortest of these waits that is at least `wait`, or of the longest one.
pub(crate) fn rnr_code(wait: Duration) -> u8 {
    let long_enough = |code: &usize| Duration::from_micros(u64::from(RNR[*code]) * 10) >= wait;
    (1..RNR.len()).find(long_enough).unwrap_or(0) as u8
}

/// The code of the shortest timeout of 4.096 µs · 2^code that is at least `timeout`, or of the
/// longest one. 0 is no timeout, for a duration of zero.
pub(crate) fn timeout_code(timeout: Duration) -> u8 {
    if timeout.is_zero() {
        return 0;
    }
    let long_enough = |code: &u8| Duration::from_nanos(4096 << *code) >= timeout;
    (1..31).find(long_enough).unwrap_or(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up() {
        for (micros, code) in [
            (0, 1),
            (10, 1),
            (11, 2),
            (640, 12),
            (641, 13),
            (1_000, 14),
            (491_520, 31),
            (491_521, 0),
            (10_000_000, 0),
        ] {
            assert_eq!(rnr_code(Duration::from_micros(micros)), code, "{micros} µs");
        }
    }

    #[test]
    fn timeouts_are_rounded_up() {
        for (micros, code) in [(0, 0), (1, 1), (8, 1), (9, 2), (67_000, 14), (67_109, 15)] {
            assert_eq!(timeout_code(Duration::from_micros(micros)), code, "{micros} µs");
        }
        assert_eq!(timeout_code(Duration::from_secs(100_000)), 31);
    }
}
