//! How long to poll before a sleep, learned from how long waits last.
use std::time::Duration;

/// Waking a sleeper takes several microseconds, so a thread that expects an answer soon polls for
/// it first. The time it may poll grows while answers come soon and shrinks to nothing while they
/// do not, so that an idle thread costs no processor time.
#[derive(Debug, Clone)]
pub struct SpinBudget {
    now: Duration,
    longest: Duration,
}

impl SpinBudget {
    /// The first and the shortest budget that is worth the trouble.
    const SHORTEST: Duration = Duration::from_micros(4);
    /// The budget grows and shrinks by this factor.
    const STEP: u32 = 2;

    /// Creates a budget of at most `longest`; zero never polls.
    pub fn new(longest: Duration) -> Self {
        Self { now: longest.min(Self::SHORTEST), longest }
    }

    /// Returns how long to poll now.
    #[inline]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Learns from a wait that ended in sleep: grows if polling a little longer would have been
    /// enough, shrinks otherwise.
    pub fn learn(&mut self, waited: Duration) {
        let shorter = self.now / Self::STEP;
        self.now = if waited <= self.longest {
            let longer = (self.now * Self::STEP).max(Self::SHORTEST);
            longer.min(self.longest)
        } else if shorter < Self::SHORTEST {
            Duration::ZERO
        } else {
            shorter
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_stops_while_nothing_comes_and_resumes_when_answers_come_soon() {
        let longest = Duration::from_micros(100);
        let mut budget = SpinBudget::new(longest);
        for _ in 0..8 {
            budget.learn(Duration::from_millis(1));
        }
        assert_eq!(budget.now(), Duration::ZERO);
        for _ in 0..8 {
            budget.learn(Duration::from_micros(5));
        }
        assert_eq!(budget.now(), longest);
        assert_eq!(SpinBudget::new(Duration::ZERO).now(), Duration::ZERO);
    }
}
