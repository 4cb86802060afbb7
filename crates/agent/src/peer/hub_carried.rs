//! What the hub has to do with numbers that data carry.
use super::hub::Hub;
use super::orders::{Carry, Verdict};
use super::roster::Roster;
use crate::inband::Numbers;
use catchment_control::drum::Input;

/// Connections of each application that carry numbers to a host at a time: one of them suffices, if it sends.
const CARRIERS: usize = 8;

impl Hub {
    /// Has data of connections with a host carry what the host is told in this round.
    pub(super) fn carry(&self, host: u32) {
        if !self.carrying.carries {
            return;
        }
        let numbers = |(at, to): ((u32, u32), u32)| {
            let key = self.keys.get(&at.0).copied()?;
            let carried = self.host.carried(at.0, (host, to))?;
            let numbers = Numbers { stamp: carried.stamp, bytes: carried.encode() };
            Some(Carry { key, queue_pair: at.1, numbers })
        };
        let all: Vec<Carry> = carriers(&self.roster, host).filter_map(numbers).collect();
        if !all.is_empty() {
            (self.tells.tell)(Verdict::Carry(all));
        }
    }

    /// Gives the host what data brought since it last had something to do.
    pub(super) fn take_carried(&mut self) {
        for (qpn, (from, Numbers { stamp, bytes: numbers })) in self.carrying.brought.take() {
            let Some(ends) = self.roster.ends(qpn, from) else { continue };
            self.carrying.count += 1;
            self.tell_host(Input::Carried { from, ends, stamp, numbers });
        }
    }
}

/// Returns connections that lead to a host, with the application there.
fn carriers(roster: &Roster, host: u32) -> impl Iterator<Item = ((u32, u32), u32)> {
    roster
        .applications()
        .flat_map(move |application| roster.leading(application, host).take(CARRIERS))
}
