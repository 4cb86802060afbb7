//! What becomes free goes to those that come next, without planning all anew.
//!
//! Where each path is one link, what runs is not touched when something becomes free: everybody before the
//! first that found the link full has all that its sender can reach, but one at most.
use super::Pausing;
use super::controller::Controller;
use super::scratch::Scratch;
use super::transfer::State;

impl Controller {
    /// Gives what is free to whoever comes next; plans all of a part anew if more has changed there.
    pub(super) fn settle(&mut self) {
        while let Some(part) = self.changed.pop() {
            self.parts[part].listed = false;
            while std::mem::take(&mut self.parts[part].freed) {
                while self.may_refill(part) && self.refill(part) {}
                self.parts[part].stale |= !self.parts[part].exact;
            }
            if self.parts[part].stale {
                self.plan(part);
            }
            if cfg!(debug_assertions) && self.parts[part].exact {
                self.check_plan(part);
            }
        }
    }

    fn may_refill(&self, part: usize) -> bool {
        self.parts[part].exact && !self.parts[part].stale
    }

    /// Plans all anew, to find that nothing changes.
    fn check_plan(&mut self, part: usize) {
        let mut scratch = Scratch::default();
        self.round(part, &mut scratch);
        let running = self.granted(part).count();
        assert_eq!(running, self.parts[part].running);
        assert_eq!(scratch.plan.len(), running, "those that run are those of the plan");
        assert!(self.is_exact(part, &scratch), "they have what the plan gives them");
    }

    /// Returns whether windows are what a plan of all would make them.
    pub(super) fn is_exact(&self, part: usize, scratch: &Scratch) -> bool {
        let rules = &self.config.rules;
        self.parts[part].is_single()
            && rules.pausing != Pausing::Never
            && rules.slot_bps.is_none()
            && scratch.plan.iter().all(|(at, rate_bps)| {
                let transfer = &self.transfers[*at];
                transfer.state == State::Granted && transfer.rate_bps == *rate_bps
            })
    }

    /// Gives something to one transfer of a part of one link; returns whether another may get something.
    fn refill(&mut self, part: usize) -> bool {
        let link = self.parts[part].links[0];
        let pool = &self.links[link].pool;
        let room_bps = pool.usable_bps().saturating_sub(pool.in_force_bps());
        if room_bps < self.config.rate_min_bps {
            return false;
        }
        if let Some((at, id)) = self.links[link].partial.take() {
            let granted = self.transfers.is_at(at, id).then(|| &self.transfers[at]);
            let granted = granted.filter(|transfer| transfer.state == State::Granted);
            if let Some(has_bps) = granted.map(|transfer| transfer.rate_bps) {
                return self.give(part, at, has_bps.saturating_add(room_bps));
            }
            return true;
        }
        let next = self.parts[part].paths.iter().filter_map(|path| {
            let mut cursor = self.queues.from(*path, self.paths[*path].full_from?);
            let (key, at) = self.queues.next(*path, &mut cursor)?;
            Some((key, at, *path, cursor))
        });
        let Some((_, at, path, mut cursor)) = next.min_by_key(|(key, ..)| *key) else {
            for path in &self.parts[part].paths {
                self.paths[*path].full_from = None;
            }
            return false;
        };
        if self.must_go_behind(at) {
            self.put_behind(at);
            return !self.parts[part].stale;
        }
        let then = self.queues.next(path, &mut cursor).map(|(key, _)| key);
        self.paths[path].full_from = then;
        self.give(part, at, room_bps)
    }

    /// Gives a transfer at most this much in all, and notes if its sender could reach more.
    fn give(&mut self, part: usize, at: u32, most_bps: u64) -> bool {
        let id = self.transfers[at].id;
        let sender_bps = self.devices.known(id.device).usable_bps();
        let rate_bps = most_bps.min(sender_bps);
        if rate_bps < self.config.rate_min_bps {
            return true;
        }
        if rate_bps < sender_bps {
            let link = self.parts[part].links[0];
            self.links[link].partial = Some((at, id));
        }
        self.carry_out(at, rate_bps);
        self.parts[part].exact = self.transfers[at].rate_bps == rate_bps;
        self.parts[part].exact
    }

    /// Gives a transfer that begins to wait all that its sender can reach, if that is free and nobody else
    /// wants it; returns whether it did.
    pub(super) fn give_at_once(&mut self, at: u32) -> bool {
        let device = self.devices.known(self.transfers[at].id.device);
        let part = self.paths[usize::from(device.path.0)].part;
        if self.gives_up || !self.may_refill(part) || device.head != at {
            return false;
        }
        let (link, rate_bps) = (self.parts[part].links[0], device.usable_bps());
        let free = rate_bps >= self.config.rate_min_bps && self.free_bps(at) >= rate_bps;
        let mut users = self.parts[part].paths.iter();
        let alone = free
            && self.links[link].partial.is_none()
            && users.all(|path| self.paths[*path].full_from.is_none());
        if alone {
            self.issue(at, rate_bps, self.now_ns);
        }
        alone
    }
}
