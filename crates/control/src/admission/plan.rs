//! Who gets what: all of a part is planned anew, then windows are changed to what was planned.
use super::controller::Controller;
use super::pool::free_from_ns;
use super::queue::Cursor;
use super::scratch::Scratch;
use super::transfer::{Flags, State, Transfer};
use super::{Pausing, TransferId};
use std::cmp::Reverse;

impl Controller {
    pub(super) fn plan(&mut self, part: usize) {
        let mut scratch = std::mem::take(&mut self.scratch);
        loop {
            self.round(part, &mut scratch);
            if scratch.hopeless.is_empty() {
                break;
            }
            scratch.hopeless.drain(..).for_each(|at| self.put_behind(at));
        }
        self.rounds = self.rounds.wrapping_add(1);
        for (at, rate_bps) in &scratch.plan {
            let transfer = &mut self.transfers[*at];
            (transfer.planned, transfer.planned_bps) = (self.rounds, *rate_bps);
        }
        self.take_back(part, &mut scratch.changed);
        for (at, rate_bps) in &scratch.plan {
            self.carry_out(*at, *rate_bps);
        }
        let exact = self.is_exact(part, &scratch);
        self.scratch = scratch;
        let part = &mut self.parts[part];
        (part.exact, part.stale, part.freed) = (exact, false, false);
    }

    /// Goes through the queues of all paths of a part in one order and gives each transfer all that its
    /// path and its sender still have. A path that is full is left; others go on. Transfers that must go
    /// behind first, because they cannot make their deadlines any more, are noted.
    pub(super) fn round(&mut self, part: usize, scratch: &mut Scratch) {
        let Scratch { plan, hopeless, rooms, cursors, heads, .. } = scratch;
        plan.clear();
        heads.clear();
        rooms.resize(self.links.len(), 0);
        cursors.resize(self.paths.len(), Cursor::default());
        let kept = self.config.rules.pausing == Pausing::Never;
        for link in &self.parts[part].links {
            let link_state = &mut self.links[*link];
            link_state.partial = None;
            let used_bps = if kept { link_state.pool.in_force_bps() } else { 0 };
            rooms[*link] = link_state.pool.usable_bps().saturating_sub(used_bps);
        }
        let least_bps = self.config.rules.slot_bps.unwrap_or(self.config.rate_min_bps);
        for path in &self.parts[part].paths {
            self.paths[*path].full_from = None;
            cursors[*path] = Cursor::default();
            let first = self.queues.next(*path, &mut cursors[*path]);
            heads.extend(first.map(|(key, at)| Reverse((key, at, *path))));
        }
        while let Some(Reverse((key, at, path))) = heads.pop() {
            let links = self.paths[path].links.iter().copied();
            let room_bps = links.clone().map(|link| rooms[link]).min().unwrap_or(0);
            if room_bps < least_bps {
                self.paths[path].full_from = Some(key);
                continue;
            }
            let next = self.queues.next(path, &mut cursors[path]);
            heads.extend(next.map(|(key, at)| Reverse((key, at, path))));
            if self.must_go_behind(at) {
                hopeless.push(at);
                continue;
            }
            let id = self.transfers[at].id;
            let device = self.devices.known(id.device);
            let used_bps = if kept { device.in_force_bps } else { 0 };
            let sender_bps = device.usable_bps().saturating_sub(used_bps);
            let rate_bps = room_bps.min(sender_bps);
            if rate_bps >= least_bps {
                let rate_bps = self.config.rules.slot_bps.unwrap_or(rate_bps);
                for link in links {
                    rooms[link] -= rate_bps;
                    if rate_bps < sender_bps {
                        self.links[link].partial = Some((at, id));
                    }
                }
                plan.push((at, rate_bps));
            }
        }
    }

    pub(super) fn must_go_behind(&self, at: u32) -> bool {
        let transfer = &self.transfers[at];
        let Flags { told, late, .. } = transfer.flags;
        transfer.state == State::Waiting
            && (!told && self.is_hopeless(at) || !late && self.must_give_way(at))
    }

    /// Puts a transfer behind that [must go there](Self::must_go_behind).
    pub(super) fn put_behind(&mut self, at: u32) {
        if !self.transfers[at].flags.told && self.is_hopeless(at) {
            return self.miss(at);
        }
        self.transfers[at].flags.late = true;
        self.requeue(at);
    }

    /// Stops those that were granted something and are not in the plan.
    fn take_back(&mut self, part: usize, changed: &mut Vec<(TransferId, u32)>) {
        if self.config.rules.pausing == Pausing::Never {
            return;
        }
        let (rounds, least_bps) = (self.rounds, self.config.rate_min_bps);
        self.pick(part, changed, |one| one.planned != rounds);
        changed.iter().for_each(|(_, at)| self.displace(*at));
        self.pick(part, changed, |one| one.planned_bps + least_bps <= one.rate_bps);
        for (_, at) in &*changed {
            // What it waits for until its window begins is in use by others.
            let transfer = &self.transfers[*at];
            let (rate_bps, start_ns) = (transfer.planned_bps, transfer.course.begins_ns());
            self.issue(*at, rate_bps, start_ns.max(self.now_ns));
        }
    }

    /// Picks some of those that have a window, in the order of their numbers.
    pub(super) fn pick(
        &self,
        part: usize,
        picked: &mut Vec<(TransferId, u32)>,
        wanted: impl Fn(&Transfer) -> bool,
    ) {
        picked.clear();
        let granted = self.granted(part).filter(|at| wanted(&self.transfers[*at]));
        picked.extend(granted.map(|at| (self.transfers[at].id, at)));
        picked.sort_unstable();
    }

    /// Gives a transfer more, as far as that is free, or will be within the time that grants go ahead.
    pub(super) fn carry_out(&mut self, at: u32, rate_bps: u64) {
        let has_bps = self.transfers[at].rate_bps;
        let more_bps = rate_bps.saturating_sub(has_bps);
        if more_bps < self.config.rate_min_bps.min(rate_bps) {
            return;
        }
        let device = self.transfers[at].id.device;
        let ahead_ns = if self.config.rules.pipelined { self.grants_ahead_ns(device) } else { 0 };
        let start_ns = self.start_ns(at, more_bps);
        if let Some(start_ns) = start_ns
            && start_ns <= self.now_ns.saturating_add(ahead_ns)
        {
            return self.issue(at, rate_bps, start_ns);
        }
        let free_bps = self.free_bps(at).min(more_bps);
        if self.config.rules.slot_bps.is_none() && free_bps >= self.config.rate_min_bps {
            self.issue(at, has_bps + free_bps, self.now_ns);
        }
    }

    /// Returns when the path and the sender of a transfer have this much more, if that is known.
    fn start_ns(&self, at: u32, more_bps: u64) -> Option<u64> {
        let device = self.devices.known(self.transfers[at].id.device);
        let (usable_bps, used_bps) = (device.usable_bps(), device.in_force_bps);
        let holds = self.holds.of_device(device.holds);
        let mut start_ns = free_from_ns(usable_bps, used_bps, holds, self.now_ns, more_bps)?;
        for link in &self.paths[usize::from(device.path.0)].links {
            let pool = &self.links[*link].pool;
            start_ns = start_ns.max(pool.free_from_ns(self.now_ns, more_bps)?);
        }
        Some(start_ns)
    }

    pub(super) fn free_bps(&self, at: u32) -> u64 {
        let device = self.devices.known(self.transfers[at].id.device);
        let held_bps: u64 = self.holds.of_device(device.holds).map(|(_, rate_bps)| rate_bps).sum();
        let sender_bps = device.usable_bps().saturating_sub(device.in_force_bps + held_bps);
        let links = self.paths[usize::from(device.path.0)].links.iter();
        links.map(|link| self.links[*link].pool.free_bps()).fold(sender_bps, u64::min)
    }
}
