//! When the next frame is due: frames at a rate, with a phase for each device.
//!
//! No clock and no sleep: the caller passes the time and sleeps. Due times are computed from the
//! frame's number, so rounding never accumulates.
use crate::format::FrameRate;
use std::time::{Duration, Instant};

/// What to do about overdue frames when the caller was delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatePolicy {
    /// All overdue frames are due at once. When more than `burst` behind, the schedule moves so that
    /// only `burst` is caught up: a long stop does not end in a flood.
    CatchUp {
        /// Most time that is caught up.
        burst: Duration,
    },
    /// Overdue frames are skipped, except for the latest, as a camera does when its pictures are not
    /// fetched.
    Skip,
}

/// What [`Pacer::poll`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Nothing is due for this long. Ask again afterwards.
    Wait(Duration),
    /// A frame is due now.
    Due {
        /// Number of the frame in the schedule, from 0.
        number: u64,
        /// Frames left out directly before it.
        skipped: u64,
        /// How long it has been due.
        late: Duration,
    },
}

/// The schedule of one device.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate: FrameRate,
    policy: LatePolicy,
    start: Instant,
    /// From `start` to frame 0: the phase, and what catching up skipped.
    offset: Duration,
    next: u64,
}

impl Pacer {
    /// Creates a schedule whose frame 0 is due `phase` after `start`.
    pub fn new(rate: FrameRate, start: Instant, phase: Duration, policy: LatePolicy) -> Self {
        Self { rate, policy, start, offset: phase, next: 0 }
    }

    /// Returns what is due at `now`. [`Pace::Due`] takes that frame off the schedule.
    pub fn poll(&mut self, now: Instant) -> Pace {
        let elapsed = now.saturating_duration_since(self.start);
        let due = self.due(self.next);
        if elapsed < due {
            return Pace::Wait(due - elapsed);
        }
        let skipped = match self.policy {
            LatePolicy::CatchUp { burst } => {
                self.offset += (elapsed - due).saturating_sub(burst);
                0
            }
            LatePolicy::Skip => {
                let first_not_due = self.rate.due_by(elapsed.saturating_sub(self.offset));
                first_not_due.saturating_sub(self.next + 1)
            }
        };
        let number = self.next + skipped;
        self.next = number.saturating_add(1);
        Pace::Due { number, skipped, late: elapsed - self.due(number) }
    }

    /// Returns how long after the start frame `number` is due.
    fn due(&self, number: u64) -> Duration {
        self.offset.saturating_add(self.rate.time_of(number))
    }
}

/// Returns the phase of device `index` of `devices`, which spreads their frames evenly over one
/// frame period. Without it all devices send at the same moment.
pub fn spread_phase(rate: FrameRate, index: u32, devices: u32) -> Duration {
    let period = rate.time_of(1).as_nanos();
    let ns = period * u128::from(index) / u128::from(devices.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
