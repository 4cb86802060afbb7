//! Who gets what: all is planned anew, then windows are changed to what was planned.
use super::controller::Controller;
use super::scratch::Scratch;
use super::transfer::{State, Transfer};
use super::{Pausing, TransferId};
use std::cmp::Reverse;
use std::ops::Bound;

impl Controller {
    pub(super) fn plan(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        loop {
            self.round(&mut scratch);
            if scratch.hopeless.is_empty() {
                break;
            }
            scratch.hopeless.drain(..).for_each(|id| self.miss(id));
        }
        let round = self.next_count();
        for (id, rate_bps) in &scratch.plan {
            if let Some(transfer) = self.transfers.get_mut(id) {
                transfer.planned = (round, *rate_bps);
            }
        }
        self.take_back(round, &mut scratch.changed);
        for (id, rate_bps) in &scratch.plan {
            self.carry_out(*id, *rate_bps);
        }
        self.exact = self.is_exact(&scratch);
        self.scratch = scratch;
        self.stale = false;
        self.freed.clear();
    }

    /// Goes through the queues of all paths in one order and gives each transfer all that its path and
    /// its sender still have. A path that is full is left; others go on. Transfers that must go behind
    /// first, because they cannot make their deadlines any more, are noted.
    pub(super) fn round(&mut self, scratch: &mut Scratch) {
        let Scratch { plan, hopeless, rooms, heads, .. } = scratch;
        plan.clear();
        heads.clear();
        rooms.clear();
        self.full_from.fill(None);
        self.links.iter_mut().for_each(|link| link.partial = None);
        let kept = self.config.rules.pausing == Pausing::Never;
        let used = |pool: &super::pool::Pool| if kept { pool.in_force_bps() } else { 0 };
        let room = |pool: &super::pool::Pool| pool.usable_bps().saturating_sub(used(pool));
        rooms.extend(self.links.iter().map(|link| room(&link.pool)));
        let least_bps = self.config.rules.slot_bps.unwrap_or(self.config.rate_min_bps);
        for (path, queue) in self.queues.iter().enumerate() {
            heads.extend(queue.first().map(|(key, id)| Reverse((*key, *id, path))));
        }
        while let Some(Reverse((key, id, path))) = heads.pop() {
            let links = self.config.paths[path].iter().map(|link| usize::from(link.0));
            let room_bps = links.clone().map(|link| rooms[link]).min().unwrap_or(0);
            if room_bps < least_bps {
                self.full_from[path] = Some(key);
                continue;
            }
            let later = (Bound::Excluded((key, id)), Bound::Unbounded);
            let next = self.queues[path].range(later).next();
            heads.extend(next.map(|(key, id)| Reverse((*key, *id, path))));
            if self.must_go_behind(id) {
                hopeless.push(id);
                continue;
            }
            let sender_bps = self.devices.get(&id.device).map_or(0, |device| room(&device.pool));
            let rate_bps = room_bps.min(sender_bps);
            if rate_bps >= least_bps {
                let rate_bps = self.config.rules.slot_bps.unwrap_or(rate_bps);
                for link in links {
                    rooms[link] -= rate_bps;
                    if rate_bps < sender_bps {
                        self.links[link].partial = Some(id);
                    }
                }
                plan.push((id, rate_bps));
            }
        }
    }

    pub(super) fn must_go_behind(&self, id: TransferId) -> bool {
        let known = self.transfers.get(&id);
        known.is_some_and(|transfer| !transfer.told && transfer.state == State::Waiting)
            && self.is_hopeless(id)
    }

    /// Stops those that were granted something and are not in the plan.
    fn take_back(&mut self, round: u64, changed: &mut Vec<TransferId>) {
        if self.config.rules.pausing == Pausing::Never {
            return;
        }
        let transfers = &self.transfers;
        let planned = |id: &TransferId| transfers.get(id).is_some_and(|one| one.planned.0 == round);
        changed.clear();
        changed.extend(self.granted.iter().filter(|id| !planned(id)));
        changed.iter().for_each(|id| self.displace(*id));
        let (transfers, least_bps) = (&self.transfers, self.config.rate_min_bps);
        let lower = |one: &Transfer| one.planned.1 + least_bps <= one.rate_bps;
        changed.clear();
        changed.extend(self.granted.iter().filter(|id| transfers.get(id).is_some_and(lower)));
        for id in &*changed {
            let Some(transfer) = self.transfers.get(id) else { continue };
            // What it waits for until its window begins is in use by others.
            let (rate_bps, start_ns) = (transfer.planned.1, transfer.course.begins_ns());
            self.issue(*id, rate_bps, start_ns.max(self.now_ns));
        }
    }

    /// Gives a transfer more, as far as that is free, or will be within the time that grants go ahead.
    pub(super) fn carry_out(&mut self, id: TransferId, rate_bps: u64) {
        let Some(transfer) = self.transfers.get(&id) else { return };
        let has_bps = transfer.rate_bps;
        let more_bps = rate_bps.saturating_sub(has_bps);
        if more_bps < self.config.rate_min_bps.min(rate_bps) {
            return;
        }
        let ahead_ns = if self.config.rules.pipelined { self.config.ahead_ns } else { 0 };
        let start_ns = self.start_ns(id, more_bps);
        if let Some(start_ns) = start_ns
            && start_ns <= self.now_ns.saturating_add(ahead_ns)
        {
            return self.issue(id, rate_bps, start_ns);
        }
        let free_bps = self.free_bps(id).min(more_bps);
        if self.config.rules.slot_bps.is_none() && free_bps >= self.config.rate_min_bps {
            self.issue(id, has_bps + free_bps, self.now_ns);
        }
    }

    /// Returns when the path and the sender of a transfer have this much more, if that is known.
    fn start_ns(&self, id: TransferId, more_bps: u64) -> Option<u64> {
        let device = self.devices.get(&id.device)?;
        let mut start_ns = device.pool.free_from_ns(self.now_ns, more_bps)?;
        for link in &self.config.paths[usize::from(device.spec.path.0)] {
            start_ns = start_ns.max(self.link(*link).pool.free_from_ns(self.now_ns, more_bps)?);
        }
        Some(start_ns)
    }

    pub(super) fn free_bps(&self, id: TransferId) -> u64 {
        let Some(device) = self.devices.get(&id.device) else { return 0 };
        let links = self.config.paths[usize::from(device.spec.path.0)].iter();
        let free_bps = links.map(|link| self.link(*link).pool.free_bps()).min().unwrap_or(0);
        free_bps.min(device.pool.free_bps())
    }
}
