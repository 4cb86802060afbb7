//! Windows: given, prolonged, taken back, run out.
use super::controller::{Controller, Timer};
use super::hold::Hold;
use super::timers::TimerId;
use super::transfer::{Course, Ends, Moment, NEVER, State, duration_ns};
use super::{DeviceId, Grant, NONE, Output, Pausing};

/// A remainder below a byte for each change of the rate comes from rounding.
pub(super) const REST_BYTES: u64 = 64;

impl Controller {
    /// Gives a transfer `rate_bps` from `start_ns` on, or when the grant is there, if that is later.
    pub(super) fn issue(&mut self, at: u32, rate_bps: u64, start_ns: u64) {
        self.transfers[at].note_earlier(self.now_ns);
        let device = self.transfers[at].id.device;
        let delay_ns = self.devices.known(device).delay_ns;
        let from_ns = start_ns.max(self.now_ns.saturating_add(delay_ns));
        if self.transfers[at].state != State::Granted {
            let end_ns = from_ns.saturating_add(self.config.lease_ns);
            self.transfers[at].lease_end = Moment::at(end_ns);
        }
        self.set_state(at, State::Granted);
        let transfer = &mut self.transfers[at];
        let before_bps = std::mem::replace(&mut transfer.rate_bps, rate_bps);
        transfer.course.steer(self.now_ns, from_ns, rate_bps);
        // Until the source obeys, it may send as fast as before.
        let until_ns = transfer.until_ns.max(transfer.earlier_ns);
        let revision = transfer.revision + 1;
        self.change(device, before_bps, rate_bps);
        if rate_bps < before_bps {
            let hold = self.hold((at, device), before_bps - rate_bps, until_ns, revision);
            self.time_hold(hold);
        }
        self.set_window(at, from_ns);
        if self.config.rules.pausing == Pausing::Never {
            self.requeue(at);
        }
    }

    /// Prolongs the window of a transfer whose source is heard from.
    pub(super) fn prolong_window(&mut self, at: u32) {
        let end_ns = self.now_ns.saturating_add(2 * self.config.lease_ns);
        let transfer = &mut self.transfers[at];
        transfer.note_earlier(self.now_ns);
        transfer.lease_end = Moment::at(end_ns);
        let from_ns = transfer.course.begins_ns();
        self.set_window(at, from_ns);
    }

    /// Sets the end of a window, at most a lease from its beginning, and tells the source. Windows whose rate
    /// changes because of others do not add up to more than a lease if the source is not heard, and to two
    /// from when it was: a source that has died does not have the link for as long as others come and go.
    pub(super) fn set_window(&mut self, at: u32, from_ns: u64) {
        let guard_ns = self.guard_ns(self.transfers[at].id.device);
        let ahead_ns = self.grants_ahead_ns(self.transfers[at].id.device);
        let rules = &self.config.rules;
        let transfer = &mut self.transfers[at];
        let begin_ns = from_ns.max(self.now_ns);
        let left = transfer.course.left_at(begin_ns);
        let bytes = rules.quantum_bytes.map_or(left, |most| most.min(left));
        let end_ns = begin_ns.saturating_add(duration_ns(bytes, transfer.rate_bps));
        let lease_ns = begin_ns
            .saturating_add(self.config.lease_ns)
            .min(transfer.lease_end.or_now(self.now_ns))
            .max(begin_ns);
        let is_last = rules.pipelined && end_ns <= lease_ns;
        transfer.flags.ends = if is_last { Ends::Last } else { Ends::Lease };
        let until_ns = if is_last { end_ns } else { lease_ns };
        transfer.until_ns = until_ns.saturating_add(guard_ns);
        transfer.revision += 1;
        transfer.due_ns =
            if is_last { transfer.until_ns.saturating_sub(ahead_ns) } else { transfer.until_ns };
        let (rate_bps, until_ns) = (transfer.rate_bps, transfer.until_ns);
        let grant = Grant { rate_bps, from_ns, until_ns, revision: transfer.revision };
        self.outputs.push_back(Output::Grant { transfer: transfer.id, grant });
        self.watch(at);
    }

    pub(super) fn guard_ns(&self, device: DeviceId) -> u64 {
        self.paths[usize::from(self.path_of(device).0)].guard_ns
    }

    /// Stops a transfer for a more important one.
    pub(super) fn displace(&mut self, at: u32) {
        let transfer = &mut self.transfers[at];
        let id = transfer.id;
        let rate_bps = std::mem::take(&mut transfer.rate_bps);
        transfer.revision += 1;
        let (revision, window_ns) = (transfer.revision, transfer.until_ns);
        let until_ns = match self.config.rules.pausing {
            Pausing::Predicted => {
                let chunk_ns = duration_ns(self.config.chunk_bytes, rate_bps);
                let delay_ns = self.devices.known(id.device).delay_ns;
                let stopped_ns = delay_ns + chunk_ns + self.guard_ns(id.device);
                window_ns.min(self.now_ns.saturating_add(stopped_ns))
            }
            Pausing::Confirmed | Pausing::Never => window_ns,
        };
        let hold = self.withdraw(at, State::Pausing, rate_bps, until_ns);
        self.set_due(at, window_ns);
        if until_ns < window_ns {
            self.time_hold(hold);
        }
        self.outputs.push_back(Output::Pause { transfer: id, revision });
    }

    /// Takes the window of a transfer out of force; it may still be used until a time, which is that of
    /// the transfer's timer.
    fn withdraw(&mut self, at: u32, state: State, rate_bps: u64, until_ns: u64) -> u32 {
        self.set_state(at, state);
        let transfer = &mut self.transfers[at];
        transfer.rate_bps = 0;
        let device = transfer.id.device;
        let earlier_ns = std::mem::take(&mut transfer.earlier_ns);
        let until_ns = if earlier_ns > transfer.until_ns {
            transfer.until_ns = earlier_ns;
            earlier_ns
        } else {
            until_ns
        };
        self.change(device, rate_bps, 0);
        let hold = self.hold((at, device), rate_bps, until_ns, 0);
        self.requeue(at);
        hold
    }

    pub(super) fn transfer_due(&mut self, at: u32) {
        let transfer = &mut self.transfers[at];
        let (id, path) = (transfer.id, self.devices.known(transfer.id.device).path);
        transfer.timer = TimerId::NONE;
        if !transfer.flags.told && transfer.alarm_ns <= self.now_ns {
            self.sound(at);
            self.note_free(path);
            if !self.transfers.is_at(at, id) {
                return;
            }
        }
        let transfer = &mut self.transfers[at];
        if transfer.due_ns > self.now_ns {
            return self.arm(at);
        }
        transfer.due_ns = NEVER;
        let (until_ns, rate_bps, last) =
            (transfer.until_ns, transfer.rate_bps, transfer.flags.ends != Ends::Lease);
        match transfer.state {
            State::Waiting => {}
            State::Granted if last => self.run_out(at, rate_bps, until_ns),
            State::Granted => {
                // Not heard of within the window: it is over.
                let hold = self.withdraw(at, State::Silent, rate_bps, until_ns);
                self.time_hold(hold);
                self.forget_later(at);
            }
            State::Ending | State::Pausing if until_ns <= self.now_ns => {
                // An earlier window that ends later stands for a source that has not heard of this one.
                let now_ns = self.now_ns;
                self.end_holds(at, |hold| hold.until_ns <= now_ns);
                self.set_state(at, State::Silent);
                self.forget_later(at);
            }
            State::Ending | State::Pausing => self.set_due(at, until_ns),
            State::Silent => self.end(at, 0),
        }
        self.note_free(path);
    }

    /// Lets the last window of a transfer, or of a quantum, run to its end; others are granted from then.
    fn run_out(&mut self, at: u32, rate_bps: u64, until_ns: u64) {
        let hold = self.withdraw(at, State::Ending, rate_bps, until_ns);
        let guard_ns = self.guard_ns(self.transfers[at].id.device);
        let transfer = &mut self.transfers[at];
        let spare_ns = if transfer.flags.ends == Ends::Begun { 0 } else { guard_ns };
        let left = transfer.course.left_at(until_ns.saturating_sub(spare_ns));
        if left > REST_BYTES {
            transfer.course = Course::standing(left);
            self.time_hold(hold);
            return self.wait(at);
        }
        self.set_due(at, until_ns);
    }

    fn forget_later(&mut self, at: u32) {
        self.set_due(at, self.now_ns.saturating_add(self.config.lease_ns));
    }

    /// Counts capacity as used until a time, or until the source of the transfer obeys a revision. Somebody
    /// must end it then: a timer of its own or that of the transfer.
    pub(super) fn hold(
        &mut self,
        (transfer, device): (u32, DeviceId),
        rate_bps: u64,
        until_ns: u64,
        revision: u32,
    ) -> u32 {
        if until_ns <= self.now_ns || rate_bps == 0 {
            return NONE;
        }
        let path = self.path_of(device);
        let mut hold = Hold::new(transfer, device, path, revision);
        (hold.rate_bps, hold.until_ns) = (rate_bps, until_ns);
        let at = self.holds.insert(hold, &mut self.devices, &mut self.transfers);
        for link in &self.paths[usize::from(path.0)].links {
            let link = &mut self.links[*link];
            link.working.advance(self.now_ns, link.load_bps());
            link.pool.hold(at, rate_bps, until_ns);
        }
        let soon_ns = until_ns.saturating_sub(self.grants_ahead_ns(device));
        if self.config.rules.pipelined && soon_ns > self.now_ns {
            self.timers.set(soon_ns, Timer::Soon(path));
        }
        at
    }

    /// Gives a hold a timer of its own.
    pub(super) fn time_hold(&mut self, at: u32) {
        if at != NONE {
            let until_ns = self.holds[at].until_ns;
            self.holds[at].timer = self.timers.set(until_ns, Timer::HoldOver(at));
        }
    }

    pub(super) fn end_hold(&mut self, at: u32) {
        let hold = self.holds.remove(at, &mut self.devices, &mut self.transfers);
        if hold.timer != TimerId::NONE {
            self.timers.remove(hold.timer);
        }
        for link in &self.paths[usize::from(hold.path.0)].links {
            let link = &mut self.links[*link];
            link.working.advance(self.now_ns, link.load_bps());
            link.pool.end_hold(at, hold.until_ns);
        }
        self.note_free(hold.path);
    }

    /// Ends all that a source said that it does not use any more.
    pub(super) fn end_holds_of(&mut self, at: u32) {
        self.end_holds(at, |_| true);
    }

    /// Ends some of what the source of a transfer could use.
    pub(super) fn end_holds(&mut self, at: u32, is_over: impl Fn(&Hold) -> bool) {
        let mut hold = self.transfers[at].holds;
        while hold != NONE {
            let (next, is_over) = (self.holds[hold].next, is_over(&self.holds[hold]));
            if is_over {
                self.end_hold(hold);
            }
            hold = next;
        }
    }

    /// Changes the rate of a window on the path and at the sender.
    pub(super) fn change(&mut self, id: DeviceId, before_bps: u64, rate_bps: u64) {
        let device = self.devices.known_mut(id);
        debug_assert!(device.in_force_bps >= before_bps, "given back more than was taken");
        let others_bps = device.in_force_bps.saturating_sub(before_bps);
        device.in_force_bps = others_bps.saturating_add(rate_bps);
        for link in &self.paths[usize::from(device.path.0)].links {
            let link = &mut self.links[*link];
            link.working.advance(self.now_ns, link.load_bps());
            link.pool.change(before_bps, rate_bps);
        }
    }
}
