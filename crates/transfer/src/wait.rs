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
    /// Look this often, then sleep for growing times: where nobody rings, as with RNICs, which tell
    /// no program of a peer's WRITEs.
    Nap {
        /// Looks before sleeping.
        spin_polls: u32,
        /// The times.
        naps: Naps,
    },
}

/// How long to sleep between two looks where nobody rings. Each sleep is twice the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Naps {
    /// The first sleep after something was found.
    pub least: Duration,
    /// The longest sleep while things come now and then.
    pub most: Duration,
    /// Sleeps of so much in all, with nothing found, mean that nothing comes at present.
    pub idle_after: Duration,
    /// The longest sleep from then on.
    pub idle_most: Duration,
}

impl Default for Naps {
    /// From 50 us, less than which no timer sleeps, to 1 ms; after 2 s of nothing up to 10 ms.
    fn default() -> Naps {
        Naps {
            least: Duration::from_micros(50),
            most: Duration::from_millis(1),
            idle_after: Duration::from_secs(2),
            idle_most: Duration::from_millis(10),
        }
    }
}

impl Naps {
    /// The same with another bound while things come.
    #[must_use]
    pub fn at_most(self, most: Duration) -> Naps {
        Naps {
            least: self.least.min(most),
            most,
            idle_most: self.idle_most.max(most),
            ..self
        }
    }
}

/// Says how long to sleep next.
#[derive(Debug, Clone)]
pub struct Napper {
    naps: Naps,
    next: Duration,
    slept: Duration,
}

impl Napper {
    /// One that has just found something.
    pub fn new(naps: Naps) -> Napper {
        Napper {
            naps,
            next: naps.least,
            slept: Duration::ZERO,
        }
    }

    /// Something was found.
    #[inline]
    pub fn found(&mut self) {
        self.next = self.naps.least;
        self.slept = Duration::ZERO;
    }

    /// Nothing was found: how long to sleep.
    pub fn nap(&mut self) -> Duration {
        let most = if self.slept < self.naps.idle_after {
            self.naps.most
        } else {
            self.naps.idle_most
        };
        let nap = self.next.min(most);
        self.slept = self.slept.saturating_add(nap);
        self.next = nap.saturating_mul(2);
        nap
    }
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
    napper: Napper,
}

impl Waiter {
    /// For one thread on a machine with this many processors.
    pub fn new(policy: WaitPolicy, cores: usize) -> Waiter {
        let spins = if cores <= FEW_CORES {
            SPINS_ON_FEW_CORES
        } else {
            u32::MAX
        };
        let naps = match policy {
            WaitPolicy::Nap { naps, .. } => naps,
            WaitPolicy::Spin
            | WaitPolicy::Yield
            | WaitPolicy::Sleep(_)
            | WaitPolicy::Doorbell { .. } => Naps::default(),
        };
        Waiter {
            policy,
            spins,
            empty: 0,
            napper: Napper::new(naps),
        }
    }

    /// Something was found.
    #[inline]
    pub fn found(&mut self) {
        self.empty = 0;
        self.napper.found();
    }

    /// Whether the next look must be a complete one, because the prediction of a quick look
    /// ([`crate::Receiver::poll_next`]) can be wrong.
    #[inline]
    pub fn wants_complete_look(&self) -> bool {
        match self.policy {
            WaitPolicy::Spin | WaitPolicy::Yield => self.empty % QUICK_LOOKS == QUICK_LOOKS - 1,
            WaitPolicy::Sleep(_) => true,
            WaitPolicy::Nap { spin_polls, .. } if self.empty >= spin_polls => true,
            WaitPolicy::Doorbell { spin_polls } | WaitPolicy::Nap { spin_polls, .. } => {
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
            WaitPolicy::Nap { spin_polls, .. } if self.empty >= spin_polls => {
                Step::Sleep(self.napper.nap())
            }
            WaitPolicy::Doorbell { .. } | WaitPolicy::Nap { .. } if self.empty > self.spins => {
                Step::Yield
            }
            WaitPolicy::Doorbell { .. } | WaitPolicy::Nap { .. } => Step::Spin,
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
    fn a_napping_waiter_sleeps_longer_and_longer_until_something_is_found() {
        let ms = Duration::from_millis;
        let naps = Naps {
            least: ms(1),
            most: ms(4),
            idle_after: ms(16),
            idle_most: ms(20),
        };
        let mut waiter = Waiter::new(
            WaitPolicy::Nap {
                spin_polls: 2,
                naps,
            },
            8,
        );
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
        let naps = Naps::default();
        let nap = WaitPolicy::Nap {
            spin_polls: 1000,
            naps,
        };
        for policy in [WaitPolicy::Spin, WaitPolicy::default(), nap] {
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
