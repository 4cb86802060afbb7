//! What sources say about their transfers.
use super::controller::Controller;
use super::registry::percent;
use super::transfer::{Course, State, Transfer, duration_ns};
use super::{ClassId, Late, Output, Refusal, Subject, TransferId};

impl Controller {
    pub(super) fn request(&mut self, id: TransferId, bytes: u64, age_ns: u64) {
        if self.transfers.contains_key(&id) {
            return self.asked_again(id, bytes);
        }
        if let Err(reason) = self.create(id, bytes, age_ns) {
            return self.refuse(Subject::Transfer(id), reason);
        }
        self.wait(id);
    }

    /// Makes a transfer that does nothing yet.
    fn create(&mut self, id: TransferId, bytes: u64, age_ns: u64) -> Result<(), Refusal> {
        let (now_ns, most) = (self.now_ns, self.config.transfers_max);
        let device = self.devices.get_mut(&id.device).ok_or(Refusal::UnknownDevice)?;
        if bytes == 0 || bytes > self.config.bytes_max {
            return Err(Refusal::Size);
        }
        if device.transfers >= most {
            return Err(Refusal::TooManyTransfers);
        }
        device.transfers += 1;
        let class = device.spec.class;
        let class_deadline_ns = self.config.classes[usize::from(class.0)].deadline_ns;
        let deadline_ns = device.spec.deadline_ns.unwrap_or(class_deadline_ns);
        let born_ns = now_ns.saturating_sub(age_ns.min(self.config.age_max_ns));
        let deadline_ns = born_ns.saturating_add(deadline_ns);
        let mut transfer = Transfer::new(class, born_ns, deadline_ns, bytes);
        transfer.arrival = self.next_count();
        if let Some(depth_ns) = self.config.rules.share_depth_ns {
            (transfer.surplus, transfer.lowered) = self.charge(id, class, bytes, depth_ns);
        }
        self.transfers.insert(id, transfer);
        Ok(())
    }

    /// Charges the shares of a device and of its class; returns whether either has had its share.
    fn charge(
        &mut self,
        id: TransferId,
        class: ClassId,
        bytes: u64,
        depth_ns: u64,
    ) -> (bool, bool) {
        let Some(device) = self.devices.get_mut(&id.device) else { return (false, false) };
        let index = usize::from(class.0);
        let mut share_bps = u64::MAX;
        let mut lowered = false;
        let most = self.config.classes[index].share_max_percent;
        for link in &self.config.paths[usize::from(device.spec.path.0)] {
            let link = &mut self.links[usize::from(link.0)];
            let capacity_bps = link.pool.usable_bps();
            let part = u128::from(capacity_bps) * u128::from(device.spec.weight);
            let part = part / u128::from(link.weights[index].max(1));
            share_bps = share_bps.min(u64::try_from(part).unwrap_or(u64::MAX));
            let class_bps = percent(capacity_bps, most);
            let within =
                most == 100 || link.shares[index].take(self.now_ns, bytes, class_bps, depth_ns);
            lowered |= !within;
        }
        (!device.share.take(self.now_ns, bytes, share_bps, depth_ns), lowered)
    }

    /// Lets a transfer wait for capacity.
    pub(super) fn wait(&mut self, id: TransferId) {
        let latest_ns = self.latest_start_ns(id);
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.state = State::Waiting;
        transfer.rate_bps = 0;
        let hopeless_ns = latest_ns.map(|latest_ns| latest_ns.saturating_add(1));
        let due_ns = if transfer.told { None } else { hopeless_ns };
        self.set_due(id, due_ns);
        self.requeue(id);
        if due_ns.is_some_and(|due_ns| due_ns <= self.now_ns) {
            self.miss(id);
        }
        self.stale |= self.changes_plan(id);
    }

    /// Returns whether a transfer that now waits may get something: not if it comes after one that found
    /// the path full.
    fn changes_plan(&self, id: TransferId) -> bool {
        let Some(key) = self.transfers.get(&id).and_then(|transfer| transfer.queued) else {
            return false;
        };
        let path = self.devices.get(&id.device).map(|device| usize::from(device.spec.path.0));
        path.is_some_and(|path| self.full_from[path].is_none_or(|full_from| key.1 < full_from))
    }

    /// Returns the last time to begin what is left and make the deadline, with the path for itself.
    fn latest_start_ns(&self, id: TransferId) -> Option<u64> {
        let (transfer, device) = (self.transfers.get(&id)?, self.devices.get(&id.device)?);
        let path = &self.config.paths[usize::from(device.spec.path.0)];
        let links = path.iter().map(|link| self.link(*link));
        let usable_bps = links.clone().map(|link| link.pool.usable_bps()).min()?;
        let best_bps = device.spec.rate_max_bps.min(usable_bps);
        let guard_ns = links.map(|link| link.guard_ns).max()?;
        let time_ns = duration_ns(transfer.course.left_at(self.now_ns), best_bps);
        let time_ns = time_ns.saturating_add(guard_ns + device.spec.delay_ns);
        Some(transfer.deadline_ns.saturating_sub(time_ns))
    }

    /// Returns whether a transfer that waits can no longer make its deadline.
    pub(super) fn is_hopeless(&self, id: TransferId) -> bool {
        self.latest_start_ns(id).is_some_and(|latest_ns| latest_ns < self.now_ns)
    }

    /// Tells a source that its deadline is missed, and puts the transfer where its class says.
    pub(super) fn miss(&mut self, id: TransferId) {
        let estimate_ns = self.estimate_ns(id);
        let demotion = self.config.rules.demotion;
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let late = self.config.classes[usize::from(transfer.class.0)].late;
        let dropped = demotion && late == Late::Drop;
        transfer.late = demotion && late != Late::Keep;
        if !std::mem::replace(&mut transfer.told, true) {
            self.outputs.push_back(Output::Missed { transfer: id, estimate_ns, dropped });
        }
        if dropped {
            self.end(id, 0);
        } else {
            self.requeue(id);
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

    /// A request for a transfer that is known: the source waits, or its window is over.
    fn asked_again(&mut self, id: TransferId, bytes: u64) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let over = transfer.until_ns <= self.now_ns;
        match transfer.state {
            State::Silent => {}
            State::Ending if over => {}
            State::Waiting | State::Granted | State::Ending | State::Pausing => return,
        }
        transfer.course = Course::standing(bytes.min(self.config.bytes_max));
        self.wait(id);
    }

    pub(super) fn progress(&mut self, id: TransferId, left_bytes: u64, revision: u32) {
        let delay_ns = self.devices.get(&id.device).map_or(0, |device| device.spec.delay_ns);
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if revision != transfer.revision {
            return;
        }
        match transfer.state {
            State::Granted => {}
            State::Silent => return self.asked_again(id, left_bytes),
            State::Waiting | State::Ending | State::Pausing => return,
        }
        let holds = transfer.holds.clone();
        let obeys =
            |hold: &u64| self.holds.get(hold).is_some_and(|hold| hold.revision == Some(revision));
        let obeyed: Vec<u64> = holds.into_iter().filter(obeys).collect();
        obeyed.into_iter().for_each(|hold| self.end_hold(hold));
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.course.correct(self.now_ns, left_bytes, delay_ns);
        self.prolong_window(id);
    }

    pub(super) fn paused(&mut self, id: TransferId, left_bytes: u64, revision: u32) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if transfer.state != State::Pausing || revision != transfer.revision {
            return;
        }
        transfer.course = Course::standing(left_bytes.min(self.config.bytes_max));
        self.end_holds_of(id);
        self.wait(id);
    }

    /// Forgets a transfer. What it had is free, after a gap.
    pub(super) fn end(&mut self, id: TransferId, gap_ns: u64) {
        if !self.transfers.contains_key(&id) {
            return;
        }
        self.end_holds_of(id);
        self.set_due(id, None);
        let granted = self.granted.remove(&id);
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.state = State::Silent;
        let rate_bps = std::mem::take(&mut transfer.rate_bps);
        self.requeue(id);
        if granted {
            self.give_back(id.device, rate_bps);
            if gap_ns > 0 {
                self.hold(id, rate_bps, self.now_ns.saturating_add(gap_ns), None);
            }
        }
        self.transfers.remove(&id);
        if let Some(device) = self.devices.get_mut(&id.device) {
            device.transfers -= 1;
        }
        self.stale = true;
    }

    pub(super) fn adopt(&mut self, id: TransferId, left_bytes: u64, rate_bps: u64, until_ns: u64) {
        if !self.transfers.contains_key(&id)
            && let Err(reason) = self.create(id, left_bytes, 0)
        {
            return self.refuse(Subject::Transfer(id), reason);
        }
        let until_ns = until_ns.min(self.now_ns.saturating_add(self.config.lease_ns));
        let most_bps = self.devices.get(&id.device).map_or(0, |device| device.spec.rate_max_bps);
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if transfer.state != State::Waiting || !transfer.holds.is_empty() {
            return;
        }
        transfer.state = State::Silent;
        transfer.until_ns = until_ns;
        self.hold(id, rate_bps.min(most_bps), until_ns, None);
        self.set_due(id, Some(until_ns.saturating_add(self.config.lease_ns)));
        self.requeue(id);
    }
}
