//! Whether rates are kept: the time in which somebody could have been served more and was not.
//!
//! An application *could be served* when it has a request, its rate or what others leave would let it go, its connection
//! has a place and the device's hands have room for it. Somebody who can still be served when a turn is over is served later than
//! his rate says: until the next turn, the agent is *behind*. It is not while somebody waits for the device, for a
//! peer or for a receive (he has no room, or no place), because then others may be waiting for him; only who is stuck does not count, since
//! nobody waits for him. Who could be served, but has more than half of his window in the device's hands, waits for it, too: of a peer
//! that takes nearly as much as the rate gives, a little is done with at the end of each turn.
use super::Scheduler;
use super::rounds::State;
use catchment_control::drum::Behind;
use std::time::Duration;

/// A turn that takes longer was interrupted: it says nothing of what can be served.
const LONGEST: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Somebody could have been served when the last turn ended.
    is_behind: bool,
    /// What had been given to the device when time was last given out.
    given: u64,
    counts: Behind,
}

impl Scheduler {
    /// Notes whether somebody can be served who was not. To be called at the end of a turn, when what the device is done
    /// with was told.
    pub fn end_turn(&mut self) {
        let window_of_one = self.window_of_one();
        let (mut is_behind, mut waits) = (false, false);
        for at in 0..self.active.len() {
            let owner = self.active[at];
            let state = self.state(owner, window_of_one);
            let is_ready = state == State::Ready;
            is_behind |= is_ready;
            waits |= state == State::NoRoom || is_ready && self.holds_half(owner, window_of_one);
            if let Some(application) = &mut self.applications[owner] {
                application.is_behind = is_ready;
                application.is_full = state == State::NoRoom;
            }
        }
        self.watch.is_behind = is_behind && !waits;
    }

    /// Notes that so much time passed, and what of it was lost to those who could have been served.
    pub(super) fn count_behind(&mut self, passed: Duration, lost: f64) {
        let given = self.done + self.in_flight;
        let served = given - std::mem::replace(&mut self.watch.given, given);
        if self.watch.is_behind && passed <= LONGEST {
            let counts = &mut self.watch.counts;
            counts.ns += passed.as_nanos() as u64;
            counts.served_bytes += served;
            counts.lost_bytes += lost as u64;
        }
    }

    /// Returns the time in which it was behind, and what was served and lost in it.
    #[must_use]
    pub fn behind(&self) -> Behind {
        self.watch.counts
    }
}
