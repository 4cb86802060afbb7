//! The term of a process: higher than that of every one before on this host, without a file.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 2024-01-01. A term is a count of quarters of a second since then: enough for 34 years.
const BEGINNING: Duration = Duration::from_secs(1_704_067_200);
const TICK_MS: u128 = 250;

/// Returns the term of a process that begins now, and how long it has to wait before it uses it: nobody who begins
/// after its first use gets the same one.
pub(crate) fn next(now: SystemTime) -> (u32, Duration) {
    let since = now.duration_since(UNIX_EPOCH + BEGINNING).unwrap_or_default();
    let past = since.as_millis() / TICK_MS;
    let wait_ms = (past + 1) * TICK_MS - since.as_millis();
    let term = u32::try_from(past + 1).unwrap_or(u32::MAX);
    (term, Duration::from_millis(u64::try_from(wait_ms).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_begins_after_a_term_was_used_has_a_higher_one() {
        let start = UNIX_EPOCH + BEGINNING + Duration::from_secs(1_000_000);
        for ms in [0, 1, 249, 250, 251, 3_600_000] {
            let began = start + Duration::from_millis(ms);
            let (term, wait) = next(began);
            assert!(wait <= Duration::from_millis(250) && !wait.is_zero());
            assert!(next(began + wait).0 > term, "{ms}");
        }
        assert_eq!(next(UNIX_EPOCH).0, 1, "a clock that is not set");
    }
}
