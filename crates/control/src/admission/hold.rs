//! Capacity that somebody may use until a time, and then no more.
use super::device::Devices;
use super::table::Transfers;
use super::timers::TimerId;
use super::{DeviceId, NONE, PathId};
use std::ops::{Index, IndexMut};

#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) rate_bps: u64,
    pub(super) until_ns: u64,
    pub(super) timer: TimerId,
    pub(super) device: DeviceId,
    /// Whose window it was; none when it has ended.
    pub(super) transfer: u32,
    /// Ends when the source says that it obeys this revision; 0 for none.
    pub(super) revision: u32,
    /// Of the transfer; or the next unused place.
    pub(super) next: u32,
    before: u32,
    /// Of the device, the last to end first.
    sooner: u32,
    later: u32,
    pub(super) path: PathId,
}

/// Holds by place, in a list for each transfer and one for each device.
#[derive(Debug)]
pub(super) struct Holds {
    holds: Vec<Hold>,
    unused: u32,
}

impl Index<u32> for Holds {
    type Output = Hold;

    fn index(&self, at: u32) -> &Hold {
        &self.holds[at as usize]
    }
}

impl IndexMut<u32> for Holds {
    fn index_mut(&mut self, at: u32) -> &mut Hold {
        &mut self.holds[at as usize]
    }
}

impl Hold {
    pub(super) const fn new(transfer: u32, device: DeviceId, path: PathId, revision: u32) -> Self {
        let (rate_bps, until_ns, timer) = (0, 0, TimerId::NONE);
        let (next, before, sooner, later) = (NONE, NONE, NONE, NONE);
        Self {
            rate_bps,
            until_ns,
            timer,
            device,
            transfer,
            revision,
            next,
            before,
            sooner,
            later,
            path,
        }
    }
}

impl Holds {
    pub(super) const fn new() -> Self {
        Self { holds: Vec::new(), unused: NONE }
    }

    pub(super) fn insert(
        &mut self,
        mut hold: Hold,
        devices: &mut Devices,
        transfers: &mut Transfers,
    ) -> u32 {
        let (until_ns, device, transfer) = (hold.until_ns, hold.device, hold.transfer);
        if transfer != NONE {
            hold.next = transfers[transfer].holds;
        }
        let at = if self.unused == NONE {
            self.holds.push(hold);
            u32::try_from(self.holds.len() - 1).expect("fewer than 2^32 holds")
        } else {
            let at = self.unused;
            self.unused = self[at].next;
            self[at] = hold;
            at
        };
        if transfer != NONE {
            let next = std::mem::replace(&mut transfers[transfer].holds, at);
            if next != NONE {
                self[next].before = at;
            }
        }
        let (mut later, mut sooner) = (NONE, devices.known(device).holds);
        while sooner != NONE && self[sooner].until_ns > until_ns {
            (later, sooner) = (sooner, self[sooner].sooner);
        }
        (self[at].later, self[at].sooner) = (later, sooner);
        if sooner != NONE {
            self[sooner].later = at;
        }
        if later == NONE {
            devices.known_mut(device).holds = at;
        } else {
            self[later].sooner = at;
        }
        at
    }

    pub(super) fn remove(
        &mut self,
        at: u32,
        devices: &mut Devices,
        transfers: &mut Transfers,
    ) -> Hold {
        let hold = self[at];
        if hold.transfer != NONE {
            if hold.before == NONE {
                transfers[hold.transfer].holds = hold.next;
            } else {
                self[hold.before].next = hold.next;
            }
            if hold.next != NONE {
                self[hold.next].before = hold.before;
            }
        }
        if hold.later == NONE {
            devices.known_mut(hold.device).holds = hold.sooner;
        } else {
            self[hold.later].sooner = hold.sooner;
        }
        if hold.sooner != NONE {
            self[hold.sooner].later = hold.later;
        }
        self[at].next = std::mem::replace(&mut self.unused, at);
        hold
    }

    /// Lets the holds of a transfer, which have timers, be nobody's.
    pub(super) fn detach(&mut self, transfer: u32, transfers: &mut Transfers) {
        let mut at = std::mem::replace(&mut transfers[transfer].holds, NONE);
        while at != NONE {
            let hold = &mut self[at];
            debug_assert!(hold.timer != TimerId::NONE, "nobody would end it");
            let next = std::mem::replace(&mut hold.next, NONE);
            (hold.transfer, hold.before) = (NONE, NONE);
            at = next;
        }
    }

    /// Returns the ends and rates of the holds of a device, the last to end first.
    pub(super) fn of_device(&self, first: u32) -> impl Iterator<Item = (u64, u64)> {
        let mut at = first;
        std::iter::from_fn(move || {
            let hold = (at != NONE).then(|| &self[at])?;
            at = hold.sooner;
            Some((hold.until_ns, hold.rate_bps))
        })
    }
}
