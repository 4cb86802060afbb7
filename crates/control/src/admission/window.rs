//! Windows: given, prolonged, taken back, run out.
use super::controller::{Controller, Hold, Timer};
use super::transfer::{State, duration_ns};
use super::{DeviceId, Grant, Output, PathId, Pausing, TransferId};

impl Controller {
    /// Gives a transfer `rate_bps` from `start_ns` on, or when the grant is there, if that is later.
    pub(super) fn issue(&mut self, id: TransferId, rate_bps: u64, start_ns: u64) {
        let Some(device) = self.devices.get(&id.device) else { return };
        let from_ns = start_ns.max(self.now_ns.saturating_add(device.spec.delay_ns));
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let before_bps = std::mem::replace(&mut transfer.rate_bps, rate_bps);
        transfer.course.steer(self.now_ns, from_ns, rate_bps);
        transfer.note_earlier(self.now_ns, before_bps.min(rate_bps));
        transfer.state = State::Granted;
        self.granted.insert(id);
        self.change(id.device, before_bps, rate_bps);
        let Some(transfer) = self.transfers.get(&id) else { return };
        if rate_bps < before_bps {
            // Until the source obeys, it may send as fast as before.
            let (until_ns, revision) = (transfer.until_ns, transfer.revision + 1);
            self.hold(id, before_bps - rate_bps, until_ns, Some(revision));
        }
        self.set_window(id, from_ns);
        self.requeue(id);
    }

    /// Prolongs the window of a transfer whose source is heard from.
    pub(super) fn prolong_window(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        // The source was heard: it knows the latest.
        transfer.earlier = (0, 0);
        transfer.note_earlier(self.now_ns, transfer.rate_bps);
        let begins_ns = transfer.course.begins_ns();
        self.set_window(id, begins_ns);
    }

    /// Sets the end of a window, at most a lease from its beginning and from now, and tells the source.
    fn set_window(&mut self, id: TransferId, from_ns: u64) {
        let Some(guard_ns) = self.guard_ns(id.device) else { return };
        let rules = &self.config.rules;
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let begin_ns = from_ns.max(self.now_ns);
        let left = transfer.course.left_at(begin_ns);
        let bytes = rules.quantum_bytes.map_or(left, |most| most.min(left));
        let end_ns = begin_ns.saturating_add(duration_ns(bytes, transfer.rate_bps));
        let lease_ns = begin_ns.saturating_add(self.config.lease_ns);
        transfer.last = rules.pipelined && end_ns <= lease_ns;
        let until_ns = if transfer.last { end_ns } else { lease_ns };
        transfer.until_ns = until_ns.saturating_add(guard_ns);
        transfer.revision += 1;
        let due_ns = if transfer.last {
            transfer.until_ns.saturating_sub(self.config.ahead_ns)
        } else {
            transfer.until_ns
        };
        let (rate_bps, until_ns) = (transfer.rate_bps, transfer.until_ns);
        let grant = Grant { rate_bps, from_ns, until_ns, revision: transfer.revision };
        self.outputs.push_back(Output::Grant { transfer: id, grant });
        self.set_due(id, Some(due_ns));
        self.watch(id);
    }

    pub(super) fn guard_ns(&self, device: DeviceId) -> Option<u64> {
        let path = self.devices.get(&device)?.spec.path;
        let links = self.config.paths[usize::from(path.0)].iter();
        links.map(|link| self.link(*link).guard_ns).max()
    }

    /// Stops a transfer for a more important one.
    pub(super) fn displace(&mut self, id: TransferId) {
        let chunk_bytes = self.config.chunk_bytes;
        let Some(guard_ns) = self.guard_ns(id.device) else { return };
        let delay_ns = self.devices.get(&id.device).map_or(0, |device| device.spec.delay_ns);
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let rate_bps = std::mem::take(&mut transfer.rate_bps);
        transfer.revision += 1;
        let (revision, window_ns) = (transfer.revision, transfer.until_ns);
        let until_ns = match self.config.rules.pausing {
            Pausing::Predicted => {
                let stopped_ns = delay_ns + duration_ns(chunk_bytes, rate_bps) + guard_ns;
                window_ns.min(self.now_ns.saturating_add(stopped_ns))
            }
            Pausing::Confirmed | Pausing::Never => window_ns,
        };
        self.withdraw(id, State::Pausing, rate_bps, until_ns);
        self.set_due(id, Some(window_ns));
        self.outputs.push_back(Output::Pause { transfer: id, revision });
    }

    /// Takes the window of a transfer out of force; it may still be used until a time.
    fn withdraw(&mut self, id: TransferId, state: State, rate_bps: u64, until_ns: u64) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.state = state;
        transfer.rate_bps = 0;
        let (earlier_bps, earlier_ns) = std::mem::take(&mut transfer.earlier);
        let (held_bps, until_ns) = if earlier_ns > until_ns.max(transfer.until_ns) {
            transfer.until_ns = earlier_ns;
            (rate_bps.max(earlier_bps), earlier_ns)
        } else {
            (rate_bps, until_ns)
        };
        self.granted.remove(&id);
        self.give_back(id.device, rate_bps);
        self.hold(id, held_bps, until_ns, None);
        self.requeue(id);
    }

    pub(super) fn transfer_due(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.armed = None;
        if !transfer.told && transfer.alarm_ns.is_some_and(|alarm_ns| alarm_ns <= self.now_ns) {
            self.sound(id);
            self.note_free_of(id.device);
        }
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if transfer.due_ns.is_none_or(|due_ns| due_ns > self.now_ns) {
            return self.arm(id);
        }
        transfer.due_ns = None;
        let (until_ns, rate_bps, last) = (transfer.until_ns, transfer.rate_bps, transfer.last);
        match transfer.state {
            State::Waiting => {}
            State::Granted if last => self.run_out(id, rate_bps, until_ns),
            State::Granted => {
                // Not heard of within the window: it is over.
                self.withdraw(id, State::Silent, rate_bps, until_ns);
                self.forget_later(id);
            }
            State::Ending | State::Pausing if until_ns <= self.now_ns => {
                transfer.state = State::Silent;
                self.forget_later(id);
            }
            State::Ending | State::Pausing => self.set_due(id, Some(until_ns)),
            State::Silent => self.end(id, 0),
        }
        self.note_free_of(id.device);
    }

    /// Lets the last window of a transfer, or of a quantum, run to its end; others are granted from then.
    fn run_out(&mut self, id: TransferId, rate_bps: u64, until_ns: u64) {
        let Some(guard_ns) = self.guard_ns(id.device) else { return };
        self.withdraw(id, State::Ending, rate_bps, until_ns);
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let end_ns = until_ns.saturating_sub(guard_ns);
        let left = transfer.course.left_at(end_ns);
        // A remainder below a byte for each change of the rate comes from rounding.
        if left > 64 {
            transfer.course = super::transfer::Course::standing(left);
            return self.wait(id);
        }
        self.set_due(id, Some(until_ns));
    }

    fn forget_later(&mut self, id: TransferId) {
        self.set_due(id, Some(self.now_ns.saturating_add(self.config.lease_ns)));
    }

    /// Counts capacity as used until a time, or until the source obeys a revision.
    pub(super) fn hold(
        &mut self,
        id: TransferId,
        rate_bps: u64,
        until_ns: u64,
        revision: Option<u32>,
    ) {
        if until_ns <= self.now_ns || rate_bps == 0 {
            return;
        }
        let Some(device) = self.devices.get_mut(&id.device) else { return };
        let path = device.spec.path;
        let hold = Hold { timer: None, device: id.device, path, revision };
        let number = self.holds.insert(hold);
        device.pool.hold(number, rate_bps, until_ns);
        if let Some(transfer) = self.transfers.get_mut(&id) {
            transfer.holds.retain(|hold| self.holds.get(*hold).is_some());
            transfer.holds.push(number);
        }
        for link in &self.config.paths[usize::from(path.0)] {
            self.links[usize::from(link.0)].pool.hold(number, rate_bps, until_ns);
        }
        let timer = self.timers.set(until_ns, Timer::HoldOver(number));
        if let Some(hold) = self.holds.get_mut(number) {
            hold.timer = Some(timer);
        }
        let soon_ns = until_ns.saturating_sub(self.config.ahead_ns);
        if self.config.rules.pipelined && soon_ns > self.now_ns {
            self.timers.set(soon_ns, Timer::Soon(path));
        }
    }

    pub(super) fn end_hold(&mut self, number: u64) {
        let Some(hold) = self.holds.remove(number) else { return };
        if let Some(timer) = hold.timer {
            self.timers.remove(timer);
        }
        if let Some(device) = self.devices.get_mut(&hold.device) {
            device.pool.end_hold(number);
        }
        for link in &self.config.paths[usize::from(hold.path.0)] {
            self.links[usize::from(link.0)].pool.end_hold(number);
        }
        self.note_free(hold.path);
    }

    /// Ends what a source said that it does not use any more.
    pub(super) fn end_holds_of(&mut self, id: TransferId) {
        let holds = self.transfers.get_mut(&id).map(|transfer| std::mem::take(&mut transfer.holds));
        holds.unwrap_or_default().into_iter().for_each(|hold| self.end_hold(hold));
    }

    pub(super) fn give_back(&mut self, device: DeviceId, rate_bps: u64) {
        self.change(device, rate_bps, 0);
    }

    fn change(&mut self, id: DeviceId, before_bps: u64, rate_bps: u64) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let PathId(path) = device.spec.path;
        let links = self.config.paths[usize::from(path)].iter();
        let pools = links.map(|link| usize::from(link.0));
        device.pool.give_back(before_bps);
        device.pool.take(rate_bps);
        for link in pools {
            self.links[link].pool.give_back(before_bps);
            self.links[link].pool.take(rate_bps);
        }
    }
}
