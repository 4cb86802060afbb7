//! How long to sleep between two polls where nothing can wake the sleeper.
use std::time::Duration;

/// Bounds of a [`Backoff`]. Each sleep is twice as long as the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The first sleep after something was found.
    pub shortest: Duration,
    /// The longest sleep while work arrives now and then.
    pub longest: Duration,
    /// After this much accumulated sleep without finding anything, the source of work counts as
    /// idle.
    pub idle_after: Duration,
    /// The longest sleep while idle.
    pub idle_longest: Duration,
}

impl Default for BackoffPolicy {
    /// From 50 us, the shortest that timers of the system manage, to 1 ms; up to 10 ms after 2 s
    /// without work.
    fn default() -> Self {
        Self {
            shortest: Duration::from_micros(50),
            longest: Duration::from_millis(1),
            idle_after: Duration::from_secs(2),
            idle_longest: Duration::from_millis(10),
        }
    }
}

impl BackoffPolicy {
    /// Returns the policy with another bound while work arrives.
    #[must_use]
    pub fn with_longest(self, longest: Duration) -> Self {
        Self {
            shortest: self.shortest.min(longest),
            longest,
            idle_longest: self.idle_longest.max(longest),
            ..self
        }
    }
}

/// An exponential backoff that reads no clock: it adds up the sleeps that it asked for.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: BackoffPolicy,
    next: Duration,
    slept: Duration,
}

impl Backoff {
    /// Creates a backoff that starts with the shortest sleep.
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, next: policy.shortest, slept: Duration::ZERO }
    }

    /// Starts over: something was found.
    #[inline]
    pub fn reset(&mut self) {
        self.next = self.policy.shortest;
        self.slept = Duration::ZERO;
    }

    /// Returns how long to sleep now that nothing was found.
    pub fn next_sleep(&mut self) -> Duration {
        let longest = if self.slept < self.policy.idle_after {
            self.policy.longest
        } else {
            self.policy.idle_longest
        };
        let sleep = self.next.min(longest);
        self.slept = self.slept.saturating_add(sleep);
        self.next = sleep.saturating_mul(2);
        sleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn sleeps_grow_until_something_is_found() {
        let mut backoff = Backoff::new(BackoffPolicy {
            shortest: ms(1),
            longest: ms(4),
            idle_after: ms(16),
            idle_longest: ms(20),
        });
        let sleeps: Vec<_> = (0..9).map(|_| backoff.next_sleep()).collect();
        // 1 ms to 4 ms, and up to 20 ms once 16 ms have found nothing.
        assert_eq!(sleeps, [1, 2, 4, 4, 4, 4, 8, 16, 20].map(ms));
        backoff.reset();
        assert_eq!(backoff.next_sleep(), ms(1));
    }

    #[test]
    fn a_lower_bound_shortens_the_first_sleep_and_a_higher_one_the_idle_sleeps_follow() {
        let short = BackoffPolicy::default().with_longest(Duration::from_micros(20));
        assert_eq!(short.shortest, Duration::from_micros(20));
        let long = BackoffPolicy::default().with_longest(ms(50));
        assert_eq!((long.shortest, long.idle_longest), (Duration::from_micros(50), ms(50)));
    }
}
