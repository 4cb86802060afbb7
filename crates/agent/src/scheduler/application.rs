//! Applications and their connections, as the scheduler has them.
use super::arrivals::Request;
use super::most::Most;
use super::pace::Pace;
use super::parts::Served;
use super::turns::{Turn, Turns};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Application {
    pub(super) share: u64,
    /// What it may be served in `round`, and in those after it while it waits; below 0 after a chunk that it did not hold.
    pub(super) deficit: i64,
    pub(super) round: u64,
    /// It came while a round was under way and has not had its part of it.
    pub(super) is_fresh: bool,
    /// Requests that are not served completely, of all its connections.
    pub(super) waiting: u64,
    /// Its connections.
    pub(super) turns: Turns,
    pub(super) in_flight: u64,
    /// What the device had done for all when it last did something for this one, in bytes.
    pub(super) moved_at: u64,
    /// It was stuck, and nobody waits for it until so many bytes of it are done: what it has there counts for nobody else.
    pub(super) stuck_for: u64,
    /// Its share is in the sum of those who have something to do.
    pub(super) counted: bool,
    pub(super) pace: Option<Pace>,
    pub(super) most: Option<Most>,
    /// The first of those for whom is what it leaves of its rate.
    pub(super) pool: Option<usize>,
    /// How often it had had nothing when time was given out last, if it had something then.
    pub(super) waited: Option<u64>,
    /// It could still be served when the last turn ended.
    pub(super) is_behind: bool,
    /// It had requests then, and its part of the window in the device's hands.
    pub(super) is_full: bool,
    pub(super) served: Served,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) application: usize,
    pub(super) requests: VecDeque<Request>,
    pub(super) offset: u64,
    /// Chunks that it may have in the device's hands beyond those that it has.
    pub(super) places: u32,
    pub(super) paused: bool,
    /// It stands in the queue of its application.
    pub(super) queued: bool,
    pub(super) turn: Turn,
}

impl Application {
    /// Whether it was served what its rate gives, or the most that it may have.
    #[inline]
    pub(super) fn is_throttled(&self) -> bool {
        self.pace.is_some_and(|pace| !pace.budget.may_go())
            || self.most.is_some_and(|most| !most.budget.may_go())
    }

    /// Notes that it is served so much.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        if let Some(pace) = &mut self.pace {
            pace.budget.spend(bytes);
        }
        if let Some(most) = &mut self.most {
            most.budget.spend(bytes);
        }
    }
}
