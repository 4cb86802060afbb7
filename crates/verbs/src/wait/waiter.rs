//! What a polling thread does after a poll that found nothing (S1.16).
//!
//! Nothing here reads a clock or sleeps. A [`Waiter`] counts empty polls and returns the next step;
//! the caller performs it.
use super::{Backoff, BackoffPolicy};
use std::time::Duration;

/// What a thread does between two polls that find nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Poll again at once. Lowest latency, one processor per thread.
    Spin,
    /// Let other threads run, then poll again.
    Yield,
    /// Sleep for a fixed time, as in the paper. The real time is longer by the timer slack.
    Sleep(Duration),
    /// Poll this often, then sleep until the other side rings.
    Doorbell {
        /// Polls before sleeping.
        spin_polls: u32,
    },
    /// Poll this often, then sleep for growing times: for devices without a doorbell, such as
    /// RNICs, which report no peer's WRITEs to a program.
    Backoff {
        /// Polls before sleeping.
        spin_polls: u32,
        /// The bounds of the sleeps.
        policy: BackoffPolicy,
    },
}

impl Default for WaitPolicy {
    /// Sleeps on the doorbell after roughly a tenth of a millisecond.
    fn default() -> Self {
        Self::Doorbell { spin_polls: 1000 }
    }
}

/// What to do before the next poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// [`std::hint::spin_loop`].
    Spin,
    /// [`std::thread::yield_now`].
    Yield,
    /// Sleep for this long.
    Sleep(Duration),
    /// Arm the watch, poll completely once more, then wait on it.
    Block,
}

/// One poll in this many is a complete one, because the prediction of a quick one may be wrong.
const QUICK_POLLS: u32 = 16;
/// With few processors the other side probably waits for this one: yield after a short spin.
const FEW_CORES: usize = 2;
const SPINS_ON_FEW_CORES: u32 = 64;

/// Counts empty polls and returns what to do next.
#[derive(Debug, Clone)]
pub struct Waiter {
    policy: WaitPolicy,
    spins: u32,
    empty: u32,
    backoff: Backoff,
}

impl Waiter {
    /// Creates a waiter for one thread on a machine with this many processors.
    pub fn new(policy: WaitPolicy, cores: usize) -> Self {
        let spins = if cores <= FEW_CORES { SPINS_ON_FEW_CORES } else { u32::MAX };
        let backoff = match policy {
            WaitPolicy::Backoff { policy, .. } => policy,
            WaitPolicy::Spin
            | WaitPolicy::Yield
            | WaitPolicy::Sleep(_)
            | WaitPolicy::Doorbell { .. } => BackoffPolicy::default(),
        };
        Self { policy, spins, empty: 0, backoff: Backoff::new(backoff) }
    }

    /// Starts over: a poll found something.
    #[inline]
    pub fn found(&mut self) {
        self.empty = 0;
        self.backoff.reset();
    }

    /// Notes that nothing rang in a [`Step::Block`]: where the next poll finds nothing, it is to block again at once.
    #[inline]
    pub fn timed_out(&mut self) {
        if let WaitPolicy::Doorbell { spin_polls } = self.policy {
            self.empty = spin_polls.saturating_sub(1);
        }
    }

    /// Returns whether the next poll must be a complete one. A quick poll checks only where it
    /// predicts the next item, and can be wrong.
    #[inline]
    pub fn wants_complete_poll(&self) -> bool {
        match self.policy {
            WaitPolicy::Spin | WaitPolicy::Yield => self.empty % QUICK_POLLS == QUICK_POLLS - 1,
            WaitPolicy::Sleep(_) => true,
            WaitPolicy::Backoff { spin_polls, .. } if self.empty >= spin_polls => true,
            WaitPolicy::Doorbell { spin_polls } | WaitPolicy::Backoff { spin_polls, .. } => {
                self.empty % QUICK_POLLS == QUICK_POLLS - 1 || self.empty + 1 >= spin_polls
            }
        }
    }

    /// Returns what to do before the next poll, after one that found nothing.
    #[inline]
    pub fn empty(&mut self) -> Step {
        self.empty = self.empty.saturating_add(1);
        match self.policy {
            WaitPolicy::Spin => Step::Spin,
            WaitPolicy::Yield => Step::Yield,
            WaitPolicy::Sleep(time) => Step::Sleep(time),
            WaitPolicy::Doorbell { spin_polls } if self.empty >= spin_polls => {
                self.empty = 0;
                Step::Block
            }
            WaitPolicy::Backoff { spin_polls, .. } if self.empty >= spin_polls => {
                Step::Sleep(self.backoff.next_sleep())
            }
            WaitPolicy::Doorbell { .. } | WaitPolicy::Backoff { .. } if self.empty > self.spins => {
                Step::Yield
            }
            WaitPolicy::Doorbell { .. } | WaitPolicy::Backoff { .. } => Step::Spin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_16_every_policy_does_what_it_says() {
        let step = |policy| Waiter::new(policy, 8).empty();
        assert_eq!(step(WaitPolicy::Spin), Step::Spin);
        assert_eq!(step(WaitPolicy::Yield), Step::Yield);
        let time = Duration::from_micros(50);
        assert_eq!(step(WaitPolicy::Sleep(time)), Step::Sleep(time));
        assert_eq!(step(WaitPolicy::Doorbell { spin_polls: 1 }), Step::Block);
    }

    #[test]
    fn a_doorbell_waiter_spins_then_blocks_and_starts_again_when_found() {
        let mut waiter = Waiter::new(WaitPolicy::Doorbell { spin_polls: 3 }, 8);
        let mut steps = |n| (0..n).map(|_| waiter.empty()).collect::<Vec<_>>();
        assert_eq!(steps(3), [Step::Spin, Step::Spin, Step::Block]);
        assert_eq!(steps(2), [Step::Spin, Step::Spin]);
        waiter.found();
        assert_eq!(waiter.empty(), Step::Spin);
    }

    #[test]
    fn a_doorbell_waiter_that_nothing_rang_for_blocks_again_at_once() {
        let mut waiter = Waiter::new(WaitPolicy::Doorbell { spin_polls: 3 }, 8);
        for _ in 0..3 {
            waiter.timed_out();
            assert!(waiter.wants_complete_poll());
            assert_eq!(waiter.empty(), Step::Block);
        }
        assert_eq!(waiter.empty(), Step::Spin, "something rang");
    }

    #[test]
    fn a_waiter_that_backs_off_sleeps_longer_and_longer_until_something_is_found() {
        let ms = Duration::from_millis;
        let policy = BackoffPolicy {
            shortest: ms(1),
            longest: ms(4),
            idle_after: ms(16),
            idle_longest: ms(20),
        };
        let mut waiter = Waiter::new(WaitPolicy::Backoff { spin_polls: 2, policy }, 8);
        let slept = |waiter: &mut Waiter, n| -> Vec<u64> {
            let mut times = Vec::new();
            while times.len() < n {
                match waiter.empty() {
                    Step::Sleep(time) => times.push(time.as_millis() as u64),
                    step @ (Step::Spin | Step::Yield | Step::Block) => {
                        assert_eq!((step, times.len()), (Step::Spin, 0));
                    }
                }
            }
            times
        };
        assert_eq!(
            slept(&mut waiter, 9),
            [1, 2, 4, 4, 4, 4, 8, 16, 20],
            "1 ms to 4 ms; after 16 ms of nothing to 20 ms"
        );
        waiter.found();
        assert_eq!(slept(&mut waiter, 2), [1, 2]);
    }

    #[test]
    fn two_cores_yield_after_a_short_spin() {
        let mut waiter = Waiter::new(WaitPolicy::Doorbell { spin_polls: 1000 }, 2);
        let steps: Vec<Step> = (0..1000).map(|_| waiter.empty()).collect();
        assert_eq!(steps.iter().filter(|s| **s == Step::Spin).count(), 64);
        assert_eq!(steps.last(), Some(&Step::Block));
    }

    #[test]
    fn no_wrong_prediction_lasts() {
        let backoff = WaitPolicy::Backoff { spin_polls: 1000, policy: BackoffPolicy::default() };
        for policy in [WaitPolicy::Spin, WaitPolicy::default(), backoff] {
            let mut waiter = Waiter::new(policy, 8);
            let complete = (0..64).filter(|_| {
                let complete = waiter.wants_complete_poll();
                waiter.empty();
                complete
            });
            assert_eq!(complete.count(), 4);
        }
    }
}
