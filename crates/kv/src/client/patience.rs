//! How long an operation has waited.
use std::time::{Duration, Instant};

/// What a wait between two looks at the clock counts for at most: in more than that this process stood still.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Time spent waiting, without that in which this process itself stood still (SIGSTOP, a suspended machine): what
/// came meanwhile has not been looked at yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    waited: Duration,
    looked: Instant,
}

impl Patience {
    pub(super) fn new(now: Instant) -> Self {
        Self { waited: Duration::ZERO, looked: now }
    }

    /// Returns how long was waited until now. Call it at least once a second while waiting.
    pub(super) fn waited(&mut self, now: Instant) -> Duration {
        self.waited += now.saturating_duration_since(self.looked).min(LOOK_MAX);
        self.looked = now;
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_not_time_in_which_nothing_came() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut patience = Patience::new(begin);
        assert_eq!(patience.waited(at(100)), Duration::from_millis(100));
        // Stopped for an hour.
        assert_eq!(patience.waited(at(3_600_100)), Duration::from_millis(1_100));
        let waited = (1..=20).map(|tenth| patience.waited(at(3_600_100 + 100 * tenth))).max();
        assert_eq!(waited, Some(Duration::from_millis(3_100)), "and all the time since counts");
    }
}
