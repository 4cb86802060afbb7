//! Verbs in virtual time: a provider whose operations take the times of [`Times`].
//!
//! It runs shipped mechanisms over verbs; only the device is replaced. A [`Fabric`] has devices,
//! queue pairs, memory and a clock. Requests of a queue pair go through its pipe one by one; each
//! takes effect at the peer, and then completes, at its time. Nothing is lost or reordered.
//!
//! Devices of [`Fabric::with_nics`] are NICs ([`Rnic`]): what takes time there is their pipe, the states of
//! connections, and the link.
//!
//! [`Fabric::advance_to`] advances time ([`Pace::ByCaller`]; [`run`] does it for programs written
//! as [`Thread`]s). For programs unaware of virtual time, a poll that finds nothing advances it
//! ([`Pace::WhenPolled`]). With [`Pace::ByCaller`] and one thread, runs are deterministic.
mod caps;
mod connection;
mod device;
mod memory;
mod qp;
mod queue;
mod responder;
mod rnic;
mod threads;
mod times;
mod transfer;
mod work;
mod world;

pub use device::SimProvider;
pub use rnic::{Did, Model, Rnic};
pub use threads::{Next, Stuck, Thread, run};
pub use times::{OpTime, Times};

use catchment_verbs::Gid;
use catchment_verbs::sync::Mutex;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use world::World;

#[cfg(test)]
mod tests;

/// What advances time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Only [`Fabric::advance_to`].
    ByCaller,
    /// Also every poll of a completion queue, and every wait, that finds nothing: to the next
    /// event.
    WhenPolled,
}

/// Devices that reach each other, and their clock. Clones are handles to the same fabric.
#[derive(Clone)]
pub struct Fabric {
    shared: Arc<Shared>,
}

struct Shared {
    world: Mutex<World>,
    pace: Pace,
}

impl Fabric {
    /// Creates a fabric without devices, at time zero.
    pub fn new(times: Times, pace: Pace) -> Self {
        Self { shared: Arc::new(Shared { world: Mutex::new(World::new(times)), pace }) }
    }

    /// Creates one whose devices are NICs of this model: all queue pairs of a device share its pipe, and operations
    /// take the times of the model alone.
    pub fn with_nics(model: Model, pace: Pace) -> Self {
        let mut world = World::new(Times::default());
        world.nic = Some(model);
        Self { shared: Arc::new(Shared { world: Mutex::new(world), pace }) }
    }

    /// Returns what the NIC of a device did; nothing where devices are none.
    pub fn did(&self, device: Gid) -> Did {
        let world = self.world();
        let number = u32::from_be_bytes([device.0[12], device.0[13], device.0[14], device.0[15]]);
        world.nics.get(&number).map_or_else(Did::default, Rnic::did)
    }

    /// Returns a provider of devices on it.
    pub fn provider(&self) -> SimProvider {
        SimProvider::new(self.clone())
    }

    /// Returns the virtual time since the start.
    pub fn now(&self) -> Duration {
        self.world().now
    }

    /// Returns when the next event is; `None` if there is none.
    pub fn next_event(&self) -> Option<Duration> {
        self.world().next_event()
    }

    /// Runs all events until then, and sets the time to it.
    pub fn advance_to(&self, time: Duration) {
        self.world().advance_to(time);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock()
    }

    /// Advances time after a poll that found nothing; returns whether there was an event.
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
