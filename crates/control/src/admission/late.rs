//! Transfers that can no longer make their deadlines: noticed when it is certain, told once.
use super::controller::{Controller, Timer};
use super::queue::Cursor;
use super::timers::TimerId;
use super::transfer::{NEVER, State, duration_ns};
use super::{DeviceId, Late, Output};

impl Controller {
    /// Sets the time at which it will be certain that a transfer misses its deadline, if nothing changes;
    /// if that is now, it is told, and is gone if its class drops it.
    pub(super) fn watch(&mut self, at: u32) {
        let transfer = &self.transfers[at];
        let (id, flags) = (transfer.id, transfer.flags);
        if !flags.told || transfer.state == State::Waiting && !flags.late {
            let certain_ns = self.certain_ns(at);
            self.transfers[at].alarm_ns = certain_ns;
            if certain_ns <= self.now_ns {
                self.sound(at);
            }
        }
        if self.transfers.is_at(at, id) {
            self.arm(at);
        }
    }

    /// Returns the first time at which a transfer cannot make its deadline, even if from then on it had the
    /// path and the sender for itself.
    fn certain_ns(&self, at: u32) -> u64 {
        let transfer = &self.transfers[at];
        let device = transfer.id.device;
        let deadline_ns = transfer.deadline_ns;
        if transfer.state == State::Waiting {
            return self.latest_start_ns(at).saturating_add(1);
        }
        let begins_ns = transfer.course.begins_ns().max(self.now_ns);
        let (best_bps, rate_bps) = (self.best_bps(device), transfer.rate_bps);
        let shortest_ns = duration_ns(transfer.course.left_at(begins_ns), best_bps);
        // The end may be told this much later.
        let delay_ns = self.devices.report_delay_ns(device);
        let heard_ns = deadline_ns.saturating_add(delay_ns).saturating_add(1);
        let Some(spare_ns) = deadline_ns.checked_sub(begins_ns.saturating_add(shortest_ns)) else {
            return self.now_ns;
        };
        // At less than the best rate the spare time runs out.
        let Some(lost_bps) = best_bps.checked_sub(rate_bps).filter(|lost_bps| *lost_bps > 0) else {
            return heard_ns;
        };
        let lasts_ns = match spare_ns.checked_mul(best_bps) {
            Some(amount) => amount / lost_bps,
            None => {
                let lasts_ns = u128::from(spare_ns) * u128::from(best_bps) / u128::from(lost_bps);
                u64::try_from(lasts_ns).unwrap_or(u64::MAX)
            }
        };
        begins_ns.saturating_add(lasts_ns).saturating_add(1).min(heard_ns)
    }

    /// Returns the rate of a transfer that has its path and its sender for itself.
    pub(super) fn best_bps(&self, device: DeviceId) -> u64 {
        let device = self.devices.known(device);
        let slot_bps = self.config.rules.slot_bps.unwrap_or(u64::MAX);
        let links = self.paths[usize::from(device.path.0)].links.iter();
        let usable_bps = links.map(|link| self.links[*link].pool.usable_bps());
        usable_bps.fold(device.rate_max_bps.min(slot_bps), u64::min)
    }

    /// Returns the last time to begin what is left and make the deadline, with the path for itself.
    fn latest_start_ns(&self, at: u32) -> u64 {
        let transfer = &self.transfers[at];
        let device = transfer.id.device;
        let left = transfer.course.left_at(self.now_ns);
        let time_ns = duration_ns(left, self.best_bps(device));
        let before_ns = self.guard_ns(device) + self.devices.known(device).delay_ns;
        transfer.deadline_ns.saturating_sub(time_ns.saturating_add(before_ns))
    }

    /// Returns whether a transfer that waits can no longer make its deadline.
    pub(super) fn is_hopeless(&self, at: u32) -> bool {
        self.latest_start_ns(at) < self.now_ns
    }

    /// Does what is due when a deadline is certain to be missed: what runs goes on.
    pub(super) fn sound(&mut self, at: u32) {
        let transfer = &self.transfers[at];
        if transfer.state == State::Waiting {
            return self.miss(at);
        }
        let left = transfer.course.left_at(self.now_ns);
        let time_ns = duration_ns(left, transfer.rate_bps.max(self.config.rate_min_bps));
        let begins_ns = transfer.course.begins_ns().max(self.now_ns);
        self.tell(at, begins_ns.saturating_add(time_ns), false);
    }

    /// Tells a source that its deadline is missed, and puts the transfer, which waits, where its class says.
    pub(super) fn miss(&mut self, at: u32) {
        let demotion = self.config.rules.demotion;
        let transfer = &mut self.transfers[at];
        // One of a class that has had its share counts as one of the next.
        let class = usize::from(transfer.class.0) + usize::from(transfer.flags.lowered);
        let late = self.config.classes[class.min(self.config.classes.len() - 1)].late;
        let dropped = demotion && late == Late::Drop;
        transfer.flags.late = demotion && late != Late::Keep;
        // One that ran when it was told is told again that it is dropped.
        if dropped || !transfer.flags.told {
            let estimate_ns = self.estimate_ns(at);
            self.tell(at, estimate_ns, dropped);
        }
        if dropped {
            self.forget(at, 0);
        } else {
            self.requeue(at);
        }
    }

    /// Puts a transfer behind all that can be in time, for good: so it is not dropped as one that turns out to be late.
    pub(super) fn finish(&mut self, at: u32) {
        self.transfers[at].flags.late = self.config.rules.demotion;
        let estimate_ns = self.estimate_ns(at);
        self.tell(at, estimate_ns, false);
        self.requeue(at);
        let transfer = &self.transfers[at];
        if transfer.state == State::Granted {
            // Others come before it now.
            self.note_stale(self.paths[usize::from(self.path_of(transfer.id.device).0)].part);
        }
    }

    fn tell(&mut self, at: u32, estimate_ns: u64, dropped: bool) {
        let transfer = &mut self.transfers[at];
        if !std::mem::replace(&mut transfer.flags.told, true) || dropped {
            self.outputs.push_back(Output::Missed { transfer: transfer.id, estimate_ns, dropped });
        }
    }

    /// Returns when a transfer that waits will be there if what runs and waits on its path goes first.
    fn estimate_ns(&self, at: u32) -> u64 {
        let path = usize::from(self.path_of(self.transfers[at].id.device).0);
        let links = self.paths[path].links.iter();
        let rate_bps = links.map(|link| self.links[*link].pool.usable_bps()).min().unwrap_or(0);
        let mut cursor = Cursor::default();
        let first = std::iter::from_fn(|| self.queues.next(path, &mut cursor)).take(16);
        let running = first.map(|(_, one)| &self.transfers[one]);
        let running = running.take_while(|one| one.state == State::Granted);
        let bytes = running
            .map(|one| one.course.left_at(self.now_ns))
            .fold(self.paths[path].waiting_bytes, u64::saturating_add);
        self.now_ns.saturating_add(duration_ns(bytes, rate_bps))
    }

    /// Sets the time at which [`transfer_due`](Self::transfer_due) looks at a transfer for its state.
    pub(super) fn set_due(&mut self, at: u32, due_ns: u64) {
        self.transfers[at].due_ns = due_ns;
        self.arm(at);
    }

    /// Takes the timer of a transfer away.
    pub(super) fn disarm(&mut self, at: u32) {
        let transfer = &mut self.transfers[at];
        (transfer.due_ns, transfer.alarm_ns) = (NEVER, NEVER);
        self.arm(at);
    }

    /// Sets the timer of a transfer: for its state or for its deadline.
    pub(super) fn arm(&mut self, at: u32) {
        let transfer = &mut self.transfers[at];
        let alarm_ns = if transfer.flags.told { NEVER } else { transfer.alarm_ns };
        let next_ns = alarm_ns.min(transfer.due_ns);
        let armed = transfer.timer != TimerId::NONE;
        let before_ns = if armed { self.timers.due_ns(transfer.timer) } else { NEVER };
        if before_ns == next_ns {
            return;
        }
        transfer.timer = match (before_ns, next_ns) {
            (NEVER, _) => self.timers.set(next_ns, Timer::Transfer(at, transfer.id.device)),
            (_, NEVER) => {
                self.timers.remove(transfer.timer);
                TimerId::NONE
            }
            _ => {
                self.timers.reset(transfer.timer, next_ns);
                transfer.timer
            }
        };
    }
}
