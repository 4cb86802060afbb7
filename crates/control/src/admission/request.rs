//! What sources say about their transfers.
use super::controller::Controller;
use super::transfer::{Course, Ends, NEVER, State, Transfer};
use super::{NONE, Refusal, Subject, TransferId};

impl Controller {
    pub(super) fn request(&mut self, id: TransferId, (bytes, age_ns): (u64, u64), finish: bool) {
        if let Some(at) = self.transfers.find(id) {
            if finish && !self.transfers[at].flags.late {
                self.finish(at);
            }
            return self.asked_again(at, bytes);
        }
        match self.create(id, bytes, age_ns) {
            Ok(at) => {
                if finish {
                    self.finish(at);
                }
                self.wait(at);
            }
            Err(reason) => self.refuse(Subject::Transfer(id), reason),
        }
    }

    /// Makes a transfer that does nothing yet.
    fn create(&mut self, id: TransferId, bytes: u64, age_ns: u64) -> Result<u32, Refusal> {
        let device = self.devices.get(id.device).ok_or(Refusal::UnknownDevice)?;
        if bytes == 0 || bytes > self.config.bytes_max {
            return Err(Refusal::Size);
        }
        if device.transfers >= self.config.transfers_max {
            return Err(Refusal::TooManyTransfers);
        }
        let class = device.class;
        let class_deadline_ns = self.config.classes[usize::from(class.0)].deadline_ns;
        let deadline_ns = self.devices.deadline_ns(id.device).unwrap_or(class_deadline_ns);
        let report_delay_ns = self.devices.report_delay_ns(id.device);
        // The age is from when the source sent it.
        let age_ns = age_ns.min(self.config.age_max_ns).saturating_add(report_delay_ns);
        let born_ns = self.now_ns.saturating_sub(age_ns);
        let times = (born_ns, born_ns.saturating_add(deadline_ns));
        self.arrivals += 1;
        let mut transfer = Transfer::new(id, class, times, bytes, self.arrivals);
        if let Some(shares) = self.config.rules.shares {
            let lowered = self.charge_class(id.device, class, bytes, shares.class_depth_ns);
            let surplus = self.charge_device(id.device, bytes, shares.device_wait_ns);
            (transfer.flags.lowered, transfer.flags.surplus) = (lowered, surplus);
        }
        let device = self.devices.known_mut(id.device);
        device.transfers += 1;
        Ok(self.transfers.insert(transfer, &mut device.first))
    }

    /// Lets a transfer wait for capacity.
    pub(super) fn wait(&mut self, at: u32) {
        let id = self.transfers[at].id;
        let part = self.paths[usize::from(self.path_of(id.device).0)].part;
        self.parts[part].delay.note(self.now_ns, self.devices.known(id.device).delay_ns);
        self.set_state(at, State::Waiting);
        let transfer = &mut self.transfers[at];
        (transfer.rate_bps, transfer.due_ns) = (0, NEVER);
        self.requeue(at);
        self.watch(at);
        if self.transfers.is_at(at, id) && !self.give_at_once(at) {
            self.note_request(at);
        }
    }

    /// Plans anew if a transfer that now waits may get something: not if it comes after one that found the
    /// path full.
    fn note_request(&mut self, at: u32) {
        let transfer = &self.transfers[at];
        let path = &self.paths[usize::from(self.path_of(transfer.id.device).0)];
        let early = path.full_from.is_none_or(|full_from| transfer.key < full_from);
        if transfer.flags.queued && early {
            self.note_stale(path.part);
        }
    }

    /// Takes more that goes with a transfer that waits.
    fn grow(&mut self, at: u32, bytes: u64) {
        let transfer = &mut self.transfers[at];
        let (device, class) = (transfer.id.device, transfer.class);
        let bytes = bytes.min(self.config.bytes_max);
        let more = bytes.saturating_sub(transfer.course.standing_bytes());
        if more == 0 {
            return;
        }
        transfer.course = Course::standing(bytes);
        let path = &mut self.paths[usize::from(self.devices.known(device).path.0)];
        path.waiting_bytes = path.waiting_bytes.saturating_add(more);
        if let Some(shares) = self.config.rules.shares {
            let lowered = self.charge_class(device, class, more, shares.class_depth_ns);
            let surplus = self.charge_device(device, more, shares.device_wait_ns);
            let flags = &mut self.transfers[at].flags;
            (flags.lowered, flags.surplus) = (flags.lowered | lowered, flags.surplus | surplus);
            self.requeue(at);
        }
        self.watch(at);
    }

    /// A request for a transfer that is known: the source waits, or its window is over.
    fn asked_again(&mut self, at: u32, bytes: u64) {
        let transfer = &mut self.transfers[at];
        let over = transfer.until_ns <= self.now_ns;
        match transfer.state {
            State::Waiting => return self.grow(at, bytes),
            State::Silent => {}
            State::Ending if over => {}
            State::Granted | State::Ending | State::Pausing => return,
        }
        transfer.course = Course::standing(bytes.min(self.config.bytes_max));
        self.wait(at);
    }

    pub(super) fn progress(&mut self, id: TransferId, left_bytes: u64, revision: u32) {
        let Some(at) = self.transfers.find(id) else { return };
        let transfer = &self.transfers[at];
        if revision != transfer.revision {
            return;
        }
        match transfer.state {
            State::Granted => {}
            State::Silent => return self.asked_again(at, left_bytes),
            State::Waiting | State::Ending | State::Pausing => return,
        }
        self.end_holds(at, |hold| hold.revision == revision);
        let delay_ns = self.devices.report_delay_ns(id.device);
        let transfer = &mut self.transfers[at];
        // It knows the latest.
        transfer.earlier_ns = 0;
        transfer.course.correct(self.now_ns, left_bytes, delay_ns);
        if transfer.flags.ends != Ends::Lease || self.gives_up {
            self.watch(at);
        } else {
            self.prolong_window(at);
        }
    }

    pub(super) fn paused(&mut self, id: TransferId, left_bytes: u64, revision: u32) {
        let Some(at) = self.transfers.find(id) else { return };
        let transfer = &mut self.transfers[at];
        if revision != transfer.revision {
            return;
        }
        if transfer.state == State::Waiting {
            return;
        }
        let granted = transfer.state == State::Granted;
        let rate_bps = std::mem::take(&mut transfer.rate_bps);
        (transfer.earlier_ns, transfer.course) =
            (0, Course::standing(left_bytes.min(self.config.bytes_max)));
        self.set_state(at, State::Silent);
        if granted {
            self.change(id.device, rate_bps, 0);
            self.note_free(self.path_of(id.device));
        }
        self.end_holds_of(at);
        self.wait(at);
    }

    pub(super) fn end_known(&mut self, id: TransferId, gap_ns: u64) {
        if let Some(at) = self.transfers.find(id) {
            self.end(at, gap_ns);
        }
    }

    /// Forgets a transfer whose source sends nothing more. What it had is free, after a gap.
    pub(super) fn end(&mut self, at: u32, gap_ns: u64) {
        self.end_holds_of(at);
        self.forget(at, gap_ns);
    }

    /// Forgets a transfer. What its source may still use runs out.
    pub(super) fn forget(&mut self, at: u32, gap_ns: u64) {
        self.holds.detach(at, &mut self.transfers);
        self.disarm(at);
        let granted = self.transfers[at].state == State::Granted;
        self.set_state(at, State::Silent);
        let transfer = &mut self.transfers[at];
        let (id, rate_bps) = (transfer.id, std::mem::take(&mut transfer.rate_bps));
        if transfer.flags.queued {
            self.requeue(at);
        }
        if granted {
            self.change(id.device, rate_bps, 0);
            if gap_ns > 0 {
                let until_ns = self.now_ns.saturating_add(gap_ns);
                let hold = self.hold((NONE, id.device), rate_bps, until_ns, 0);
                self.time_hold(hold);
            }
        }
        let device = self.devices.known_mut(id.device);
        device.transfers -= 1;
        let path = device.path;
        self.transfers.remove(at, &mut device.first);
        self.note_free(path);
    }

    pub(super) fn adopt(
        &mut self,
        id: TransferId,
        (left_bytes, age_ns, finish): (u64, u64, bool),
        rate_bps: u64,
        until_ns: u64,
    ) {
        let known = self.transfers.find(id).map_or_else(|| self.create(id, left_bytes, age_ns), Ok);
        let at = match known {
            Ok(at) => at,
            Err(reason) => return self.refuse(Subject::Transfer(id), reason),
        };
        let until_ns = until_ns.min(self.now_ns.saturating_add(self.config.lease_ns));
        let transfer = &mut self.transfers[at];
        let is_new = transfer.revision == 0 && transfer.holds == NONE && transfer.until_ns == 0;
        if !is_new {
            return;
        }
        transfer.until_ns = until_ns;
        self.set_state(at, State::Silent);
        if finish {
            self.finish(at);
        }
        let most_bps = self.devices.known(id.device).rate_max_bps;
        let hold = self.hold((at, id.device), rate_bps.min(most_bps), until_ns, 0);
        self.time_hold(hold);
        self.set_due(at, until_ns.saturating_add(self.config.lease_ns));
        self.requeue(at);
    }
}
