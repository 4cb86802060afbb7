//! How to wait when there is nothing to do (S1.16). The same options for every mechanism.
//!
//! Nothing here reads a clock or sleeps. A [`Waiter`] counts looks that found nothing and says
//! what to do next; the caller does it.
use std::time::Duration;

/// What a thread does between two looks that find nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Look again at once. Lowest latency, one processor per thread.
    Spin,
    /// Let other threads run, then look again.
    Yield,
    /// Sleep for a fixed time, as in the paper. The real time is longer by the timer slack.
    Sleep(Duration),
    /// Look this often, then sleep until the other side rings.
    Doorbell {
        /// Looks before sleeping.
        spin_polls: u32,
    },
}

impl Default for WaitPolicy {
    /// Sleeps on the doorbell after roughly a tenth of a millisecond.
    fn default() -> WaitPolicy {
        WaitPolicy::Doorbell { spin_polls: 1000 }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// [`std::hint::spin_loop`].
    Spin,
    /// [`std::thread::yield_now`].
    Yield,
    /// Sleep for this long.
    Sleep(Duration),
    /// Arm the watch, look completely once more, then wait on it.
    Block,
}

/// Every so many quick looks comes a complete one: the prediction may be wrong.
const QUICK_LOOKS: u32 = 16;
/// With few processors the other side probably waits for ours: spin hardly, yield instead.
const FEW_CORES: usize = 2;
const SPINS_ON_FEW_CORES: u32 = 64;

/// Counts looks that found nothing.
#[derive(Debug, Clone)]
pub struct Waiter {
    policy: WaitPolicy,
    spins: u32,
    empty: u32,
}

impl Waiter {
    /// For one thread on a machine with this many processors.
    pub fn new(policy: WaitPolicy, cores: usize) -> Waiter {
        let spins = if cores <= FEW_CORES {
            SPINS_ON_FEW_CORES
        } else {
            u32::MAX
        };
        Waiter {
            policy,
            spins,
            empty: 0,
        }
    }

    /// Something was found.
    #[inline]
    pub fn found(&mut self) {
        self.empty = 0;
    }

    /// Whether the next look must be a complete one, because the prediction of a quick look
    /// ([`crate::Receiver::poll_next`]) can be wrong.
    #[inline]
    pub fn wants_complete_look(&self) -> bool {
        match self.policy {
            WaitPolicy::Spin | WaitPolicy::Yield => self.empty % QUICK_LOOKS == QUICK_LOOKS - 1,
            WaitPolicy::Sleep(_) => true,
            WaitPolicy::Doorbell { spin_polls } => {
                self.empty % QUICK_LOOKS == QUICK_LOOKS - 1 || self.empty + 1 >= spin_polls
            }
        }
    }

    /// Nothing was found: what to do before the next look.
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
            WaitPolicy::Doorbell { .. } if self.empty > self.spins => Step::Yield,
            WaitPolicy::Doorbell { .. } => Step::Spin,
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
    fn two_cores_yield_after_a_short_spin() {
        let mut waiter = Waiter::new(WaitPolicy::Doorbell { spin_polls: 1000 }, 2);
        let steps: Vec<Step> = (0..1000).map(|_| waiter.empty()).collect();
        assert_eq!(steps.iter().filter(|s| **s == Step::Spin).count(), 64);
        assert_eq!(steps.last(), Some(&Step::Block));
    }

    #[test]
    fn no_wrong_prediction_lasts() {
        for policy in [WaitPolicy::Spin, WaitPolicy::default()] {
            let mut waiter = Waiter::new(policy, 8);
            let complete = (0..64).filter(|_| {
                let complete = waiter.wants_complete_look();
                waiter.empty();
                complete
            });
            assert_eq!(complete.count(), 4);
        }
    }
}
