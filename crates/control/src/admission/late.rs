//! Transfers that can no longer make their deadlines: noticed when it is certain, told once.
use super::controller::{Controller, Timer};
use super::transfer::{State, duration_ns};
use super::{Late, Output, TransferId};

impl Controller {
    /// Sets the time at which it will be certain that a transfer misses its deadline, if nothing changes;
    /// if that is now, it is told.
    pub(super) fn watch(&mut self, id: TransferId) {
        let certain_ns = self.certain_ns(id);
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.alarm_ns = certain_ns;
        if certain_ns.is_some_and(|certain_ns| certain_ns <= self.now_ns) {
            self.sound(id);
        }
        self.arm(id);
    }

    /// Returns the first time at which a transfer cannot make its deadline, even if from then on it had the
    /// path and the sender for itself.
    fn certain_ns(&self, id: TransferId) -> Option<u64> {
        let (transfer, device) = (self.transfers.get(&id)?, self.devices.get(&id.device)?);
        let deadline_ns = transfer.deadline_ns;
        if transfer.state == State::Waiting {
            return Some(self.latest_start_ns(id)?.saturating_add(1));
        }
        let begins_ns = transfer.course.begins_ns().max(self.now_ns);
        let (best_bps, rate_bps) = (self.best_bps(id)?, transfer.rate_bps);
        let shortest_ns = duration_ns(transfer.course.left_at(begins_ns), best_bps);
        // The end may be told this much later.
        let heard_ns = deadline_ns.saturating_add(device.spec.report_delay_ns).saturating_add(1);
        let Some(spare_ns) = deadline_ns.checked_sub(begins_ns.saturating_add(shortest_ns)) else {
            return Some(self.now_ns);
        };
        // At less than the best rate the spare time runs out.
        let Some(lost_bps) = best_bps.checked_sub(rate_bps).filter(|lost_bps| *lost_bps > 0) else {
            return Some(heard_ns);
        };
        let lasts_ns = u128::from(spare_ns) * u128::from(best_bps) / u128::from(lost_bps);
        let lasts_ns = u64::try_from(lasts_ns).unwrap_or(u64::MAX);
        Some(begins_ns.saturating_add(lasts_ns).saturating_add(1).min(heard_ns))
    }

    /// Returns the rate of a transfer that has its path and its sender for itself.
    fn best_bps(&self, id: TransferId) -> Option<u64> {
        let device = self.devices.get(&id.device)?;
        let links = self.config.paths[usize::from(device.spec.path.0)].iter();
        let usable_bps = links.map(|link| self.link(*link).pool.usable_bps()).min()?;
        let slot_bps = self.config.rules.slot_bps.unwrap_or(u64::MAX);
        Some(device.spec.rate_max_bps.min(usable_bps).min(slot_bps))
    }

    /// Returns the last time to begin what is left and make the deadline, with the path for itself.
    fn latest_start_ns(&self, id: TransferId) -> Option<u64> {
        let (transfer, device) = (self.transfers.get(&id)?, self.devices.get(&id.device)?);
        let time_ns = duration_ns(transfer.course.left_at(self.now_ns), self.best_bps(id)?);
        let time_ns = time_ns.saturating_add(self.guard_ns(id.device)? + device.spec.delay_ns);
        Some(transfer.deadline_ns.saturating_sub(time_ns))
    }

    /// Returns whether a transfer that waits can no longer make its deadline.
    pub(super) fn is_hopeless(&self, id: TransferId) -> bool {
        self.latest_start_ns(id).is_some_and(|latest_ns| latest_ns < self.now_ns)
    }

    /// Does what is due when a deadline is certain to be missed: what runs goes on.
    pub(super) fn sound(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get(&id) else { return };
        if transfer.state == State::Waiting {
            return self.miss(id);
        }
        let left = transfer.course.left_at(self.now_ns);
        let time_ns = duration_ns(left, transfer.rate_bps.max(self.config.rate_min_bps));
        let begins_ns = transfer.course.begins_ns().max(self.now_ns);
        self.tell(id, begins_ns.saturating_add(time_ns), false);
    }

    /// Tells a source that its deadline is missed, and puts the transfer, which waits, where its class says.
    pub(super) fn miss(&mut self, id: TransferId) {
        let estimate_ns = self.estimate_ns(id);
        let demotion = self.config.rules.demotion;
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        // One of a class that has had its share counts as one of the next.
        let class = usize::from(transfer.class.0) + usize::from(transfer.lowered);
        let late = self.config.classes[class.min(self.config.classes.len() - 1)].late;
        let dropped = demotion && late == Late::Drop;
        transfer.late = demotion && late != Late::Keep;
        self.tell(id, estimate_ns, dropped);
        if dropped {
            self.forget(id, 0);
        } else {
            self.requeue(id);
        }
    }

    fn tell(&mut self, id: TransferId, estimate_ns: u64, dropped: bool) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if !std::mem::replace(&mut transfer.told, true) {
            self.outputs.push_back(Output::Missed { transfer: id, estimate_ns, dropped });
        }
    }

    fn estimate_ns(&self, id: TransferId) -> u64 {
        let Some(device) = self.devices.get(&id.device) else { return u64::MAX };
        let path = usize::from(device.spec.path.0);
        let links = self.config.paths[path].iter().map(|link| self.link(*link));
        let rate_bps = links.map(|link| link.pool.usable_bps()).min().unwrap_or(0);
        let left = |id| self.transfers.get(id).map_or(0, |one| one.course.left_at(self.now_ns));
        // The first of each device: enough for an estimate, and bounded.
        let first = self.queues[path].iter().take(64).filter(|(_, one)| *one != id);
        let bytes = first.map(|(_, one)| left(one)).fold(left(&id), u64::saturating_add);
        self.now_ns.saturating_add(duration_ns(bytes, rate_bps))
    }

    /// Sets the time at which [`transfer_due`](Self::transfer_due) looks at a transfer for its state.
    pub(super) fn set_due(&mut self, id: TransferId, due_ns: Option<u64>) {
        if let Some(transfer) = self.transfers.get_mut(&id) {
            transfer.due_ns = due_ns;
            self.arm(id);
        }
    }

    /// Takes the timer of a transfer away.
    pub(super) fn disarm(&mut self, id: TransferId) {
        if let Some(transfer) = self.transfers.get_mut(&id) {
            (transfer.due_ns, transfer.alarm_ns) = (None, None);
            self.arm(id);
        }
    }

    /// Sets the timer of a transfer: for its state or for its deadline.
    pub(super) fn arm(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let alarm_ns = transfer.alarm_ns.filter(|_| !transfer.told);
        let next_ns = [alarm_ns, transfer.due_ns].into_iter().flatten().min();
        let before = transfer.armed;
        if before.map(|(before_ns, _)| before_ns) == next_ns {
            return;
        }
        if let Some((_, timer)) = before {
            self.timers.remove(timer);
        }
        let set = |due_ns| (due_ns, self.timers.set(due_ns, Timer::Transfer(id)));
        transfer.armed = next_ns.map(set);
    }
}
