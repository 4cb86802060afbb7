//! Times and counts as the standard codes them in a few bits.
use std::time::Duration;

/// Returns what a code of credits, or of a wait in units of 10 µs, stands for: 1, 2, 3, 4, 6, 8,
/// 12, then each the double of the one two before. Only the lowest five bits of `code` count.
pub const fn steps(code: u8) -> u32 {
    match code & 31 {
        0 => 0,
        1 => 1,
        code if code.is_multiple_of(2) => 1 << (code / 2),
        code => 3 << (code / 2 - 1),
    }
}

/// Returns how long to wait after an RNR NAK with this timer code: 10 µs to 655.36 ms (IBTA volume
/// 1, 9.7.5: encoding for RNR NAK timer field).
pub const fn rnr_timer(code: u8) -> Duration {
    let steps = match code & 31 {
        0 => 1 << 16,
        code => steps(code),
    };
    Duration::from_micros(10 * steps as u64)
}

/// Returns the code of the shortest wait that is at least `wait`; the longest one when there is
/// none.
pub const fn rnr_timer_code(wait: Duration) -> u8 {
    let mut code = 1;
    while code < 32 {
        if rnr_timer(code).as_nanos() >= wait.as_nanos() {
            return code;
        }
        code += 1;
    }
    0
}

/// Returns the timeout of a local ACK timeout code: 4.096 us times 2^code; 0 means none (IBTA
/// volume 1, 9.7.6.1.3). Only the lowest five bits of `code` count.
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 31 {
        0 => None,
        code => Some(Duration::from_nanos(4096 << code)),
    }
}

/// Returns the code of the shortest timeout of 4.096 µs · 2^code that is at least `timeout`, or of
/// the longest one. 0 is no timeout, for a duration of zero.
pub fn ack_timeout_code(timeout: Duration) -> u8 {
    if timeout.is_zero() {
        return 0;
    }
    let long_enough = |code: &u8| Duration::from_nanos(4096 << *code) >= timeout;
    (1..31).find(long_enough).unwrap_or(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IBTA volume 1, 9.7.5, encoding for RNR NAK timer field, in units of 10 microseconds; code 0
    /// is last.
    const RNR_TIMERS: [u64; 32] = [
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536,
    ];

    #[test]
    fn waiting_times_are_those_of_the_standard() {
        for (at, steps) in RNR_TIMERS.into_iter().enumerate() {
            let code = (at as u8 + 1) % 32;
            assert_eq!(rnr_timer(code), Duration::from_micros(10 * steps), "code {code}");
            assert_eq!(rnr_timer_code(rnr_timer(code)), code);
            let less = rnr_timer(code) - Duration::from_nanos(1);
            assert_eq!(rnr_timer_code(less), code, "never shorter than asked");
        }
        assert_eq!(rnr_timer_code(Duration::ZERO), 1);
        assert_eq!(rnr_timer_code(Duration::MAX), 0);
    }

    #[test]
    fn codes_are_those_of_the_standard() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(4096 << 31)));
        assert_eq!(ack_timeout(32), None);
    }

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
            assert_eq!(rnr_timer_code(Duration::from_micros(micros)), code, "{micros} µs");
        }
    }

    #[test]
    fn timeouts_are_rounded_up() {
        for (micros, code) in [(0, 0), (1, 1), (8, 1), (9, 2), (67_000, 14), (67_109, 15)] {
            assert_eq!(ack_timeout_code(Duration::from_micros(micros)), code, "{micros} µs");
        }
        assert_eq!(ack_timeout_code(Duration::from_secs(100_000)), 31);
    }
}
