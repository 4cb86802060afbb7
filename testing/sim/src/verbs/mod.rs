//! Verbs in virtual time: a provider whose operations take as long as [`Times`] say.
//!
//! Mechanisms over verbs are driven with it as they ship; only the device is replaced. A [`Fabric`]
//! has devices, queue pairs, memory and a clock. Requests of a queue pair go through its pipe one
//! after the other; an effect reaches the peer's memory or receive queue, and a completion the
//! sender's queue, when its time has come. Nothing is lost and nothing overtakes.
//!
//! Time moves when [`Fabric::advance_to`] says so ([`Pace::ByCaller`]; [`run`] does it for programs
//! that are written as [`Thread`]s), or, for programs that know nothing of virtual time, whenever
//! somebody polls and finds nothing ([`Pace::WhenPolled`]). By the caller's pace and from one
//! thread, a run is the same run everywhere.
mod caps;
mod connection;
mod device;
mod memory;
mod qp;
mod queue;
mod responder;
mod threads;
mod times;
mod way;
mod work;
mod world;

pub use device::SimProvider;
pub use threads::{Next, Stuck, Thread, run};
pub use times::{OpTime, Times};

use catchment_verbs::sync::Mutex;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use world::World;

#[cfg(test)]
mod tests;

/// Who moves time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// [`Fabric::advance_to`] and nothing else.
    ByCaller,
    /// Also every poll of a completion queue, and every wait, that finds nothing: to the next event.
    WhenPolled,
}

/// Devices that reach each other, and their clock. Clones are handles to the same one.
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Shared>,
}

struct Shared {
    world: Mutex<World>,
    pace: Pace,
}

impl Fabric {
    /// A fabric without devices, at time zero.
    pub fn new(times: Times, pace: Pace) -> Self {
        Self { shared: Arc::new(Shared { world: Mutex::new(World::new(times)), pace }) }
    }

    /// A provider of devices on it.
    pub fn provider(&self) -> SimProvider {
        SimProvider::new(self.clone())
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.world().now
    }

    /// When something happens next by itself; `None` if all is quiet.
    pub fn next_event(&self) -> Option<Duration> {
        self.world().next_event()
    }

    /// Lets happen what happens until then, and makes it that time.
    pub fn advance_to(&self, time: Duration) {
        self.world().advance_to(time);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock()
    }

    /// Somebody looked and found nothing: true if something happened meanwhile.
    fn idle(&self) -> bool {
        if self.shared.pace == Pace::ByCaller {
            return false;
        }
        let mut world = self.world();
        match world.next_event() {
            Some(time) => {
                world.advance_to(time);
                true
            }
            None => false,
        }
    }
}
