//! What sources say about their transfers.
use super::controller::Controller;
use super::transfer::{Course, State, Transfer};
use super::{Refusal, Subject, TransferId};

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
        // The age is from when the source sent it.
        let age_ns = age_ns.min(self.config.age_max_ns).saturating_add(device.spec.report_delay_ns);
        let born_ns = now_ns.saturating_sub(age_ns);
        let deadline_ns = born_ns.saturating_add(deadline_ns);
        let mut transfer = Transfer::new(class, born_ns, deadline_ns, bytes);
        transfer.arrival = self.next_count();
        if let Some(shares) = self.config.rules.shares {
            transfer.lowered = self.charge_class(id, class, bytes, shares.class_depth_ns);
            transfer.surplus = self.charge_device(id, bytes, shares.device_wait_ns);
        }
        self.transfers.insert(id, transfer);
        Ok(())
    }

    /// Lets a transfer wait for capacity.
    pub(super) fn wait(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.state = State::Waiting;
        transfer.rate_bps = 0;
        self.set_due(id, None);
        self.requeue(id);
        self.watch(id);
        if !self.give_at_once(id) {
            self.stale |= self.changes_plan(id);
        }
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
        let spec = self.devices.get(&id.device).map(|device| &device.spec);
        let delay_ns = spec.map_or(0, |spec| spec.report_delay_ns);
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
            |hold: &u64| self.holds.get(*hold).is_some_and(|hold| hold.revision == Some(revision));
        let obeyed: Vec<u64> = holds.into_iter().filter(obeys).collect();
        obeyed.into_iter().for_each(|hold| self.end_hold(hold));
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.course.correct(self.now_ns, left_bytes, delay_ns);
        if transfer.last {
            transfer.earlier = (0, 0);
            self.watch(id);
        } else {
            self.prolong_window(id);
        }
    }

    pub(super) fn paused(&mut self, id: TransferId, left_bytes: u64, revision: u32) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if transfer.state == State::Waiting || revision != transfer.revision {
            return;
        }
        transfer.course = Course::standing(left_bytes.min(self.config.bytes_max));
        transfer.earlier = (0, 0);
        let rate_bps = std::mem::take(&mut transfer.rate_bps);
        if self.granted.remove(&id) {
            self.give_back(id.device, rate_bps);
            self.note_free_of(id.device);
        }
        self.end_holds_of(id);
        self.wait(id);
    }

    /// Forgets a transfer whose source sends nothing more. What it had is free, after a gap.
    pub(super) fn end(&mut self, id: TransferId, gap_ns: u64) {
        self.end_holds_of(id);
        self.forget(id, gap_ns);
    }

    /// Forgets a transfer. What its source may still use runs out.
    pub(super) fn forget(&mut self, id: TransferId, gap_ns: u64) {
        if !self.transfers.contains_key(&id) {
            return;
        }
        self.disarm(id);
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
            let path = device.spec.path;
            self.note_free(path);
        }
    }

    pub(super) fn adopt(
        &mut self,
        id: TransferId,
        (left_bytes, age_ns): (u64, u64),
        rate_bps: u64,
        until_ns: u64,
    ) {
        if !self.transfers.contains_key(&id)
            && let Err(reason) = self.create(id, left_bytes, age_ns)
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
