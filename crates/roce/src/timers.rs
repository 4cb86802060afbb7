//! Timer codes of the standard, and times as numbers.
//!
//! RNR timer codes are in [`crate::wire::aeth`].
use std::time::Duration;

/// Returns the timeout of a local ACK timeout code: 4.096 us times 2^code; 0 means none (IBTA
/// volume 1, 9.7.6.1.3). Only the lowest five bits of `code` count.
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 31 {
        0 => None,
        code => Some(Duration::from_nanos(4096 << code)),
    }
}

/// A `Duration` as nanoseconds; what does not fit is the largest number.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the earlier of two times, where none is never.
pub(crate) fn earliest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_standard() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(4096 << 31)));
        assert_eq!(ack_timeout(32), None);
    }

    #[test]
    fn none_is_never() {
        assert_eq!(earliest(None, None), None);
        assert_eq!(earliest(Some(3), None), Some(3));
        assert_eq!(earliest(None, Some(2)), Some(2));
        assert_eq!(earliest(Some(3), Some(2)), Some(2));
    }
}
