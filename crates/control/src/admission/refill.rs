//! What became free goes to those that come next, without planning all anew.
//!
//! Where each path is one link, what runs is not touched when something becomes free: everybody before the
//! first that found the link full has all that its sender can reach, but one at most.
use super::controller::Controller;
use super::scratch::Scratch;
use super::transfer::{Key, State};
use super::{DeviceId, LinkId, PathId, Pausing, TransferId};
use std::ops::Bound;

impl Controller {
    /// Notes that something is free on a path.
    pub(super) fn note_free(&mut self, path: PathId) {
        if !self.freed.contains(&path) {
            self.freed.push(path);
        }
    }

    pub(super) fn note_free_of(&mut self, device: DeviceId) {
        if let Some(path) = self.devices.get(&device).map(|device| device.spec.path) {
            self.note_free(path);
        }
    }

    /// Gives what is free to whoever comes next; plans all anew if more has changed.
    pub(super) fn settle(&mut self) {
        while let Some(path) = self.freed.pop() {
            for at in 0..self.config.paths[usize::from(path.0)].len() {
                let link = self.config.paths[usize::from(path.0)][at];
                while self.exact && !self.stale && self.refill(link) {}
            }
            self.stale |= !self.exact;
        }
        if self.stale {
            self.plan();
        }
        if cfg!(debug_assertions) && self.exact {
            self.check_plan();
        }
    }

    /// Plans all anew, to find that nothing changes.
    fn check_plan(&mut self) {
        let mut scratch = Scratch::default();
        self.round(&mut scratch);
        let running = self.granted.len();
        assert_eq!(scratch.plan.len(), running, "those that run are those of the plan");
        assert!(self.is_exact(&scratch), "they have what the plan gives them");
    }

    /// Returns whether windows are what a plan of all would make them.
    pub(super) fn is_exact(&self, scratch: &Scratch) -> bool {
        let rules = &self.config.rules;
        self.single
            && rules.pausing != Pausing::Never
            && rules.slot_bps.is_none()
            && scratch.plan.iter().all(|(id, rate_bps)| {
                let transfer = self.transfers.get(id);
                transfer.is_some_and(|one| one.state == State::Granted && one.rate_bps == *rate_bps)
            })
    }

    /// Gives something to one transfer; returns whether another may get something.
    fn refill(&mut self, link: LinkId) -> bool {
        let known = self.link(link);
        let room_bps = known.pool.usable_bps().saturating_sub(known.pool.in_force_bps());
        if room_bps < self.config.rate_min_bps {
            return false;
        }
        if let Some(id) = self.links[usize::from(link.0)].partial.take() {
            let transfer = self.transfers.get(&id);
            let granted = transfer.filter(|transfer| transfer.state == State::Granted);
            if let Some(has_bps) = granted.map(|transfer| transfer.rate_bps) {
                return self.give(id, link, has_bps.saturating_add(room_bps));
            }
            return true;
        }
        let next = self.users[usize::from(link.0)].iter().filter_map(|path| {
            let from = (self.full_from[usize::from(path.0)]?, FIRST);
            let (key, id) = self.queues[usize::from(path.0)].range(from..).next()?;
            Some((*key, *id, *path))
        });
        let Some((key, id, path)) = next.min() else {
            for path in &self.users[usize::from(link.0)] {
                self.full_from[usize::from(path.0)] = None;
            }
            return false;
        };
        if self.must_go_behind(id) {
            self.miss(id);
            return !self.stale;
        }
        let later = (Bound::Excluded((key, id)), Bound::Unbounded);
        let then = self.queues[usize::from(path.0)].range(later).next().map(|(key, _)| *key);
        self.full_from[usize::from(path.0)] = then;
        self.give(id, link, room_bps)
    }

    /// Gives a transfer at most this much in all, and notes if its sender could reach more.
    fn give(&mut self, id: TransferId, link: LinkId, most_bps: u64) -> bool {
        let sender_bps = self.devices.get(&id.device).map_or(0, |device| device.pool.usable_bps());
        let rate_bps = most_bps.min(sender_bps);
        if rate_bps < self.config.rate_min_bps {
            return true;
        }
        if rate_bps < sender_bps {
            self.links[usize::from(link.0)].partial = Some(id);
        }
        self.carry_out(id, rate_bps);
        self.exact = self.transfers.get(&id).is_some_and(|one| one.rate_bps == rate_bps);
        self.exact
    }

    /// Gives a transfer that begins to wait all that its sender can reach, if that is free and nobody else
    /// wants it; returns whether it did.
    pub(super) fn give_at_once(&mut self, id: TransferId) -> bool {
        let Some(device) = self.devices.get(&id.device) else { return false };
        let path = device.spec.path;
        let rate_bps = device.pool.usable_bps();
        let first = device.head.is_some_and(|(_, head)| head == id);
        let waits = self.config.paths[usize::from(path.0)].iter().any(|link| {
            let users = self.users[usize::from(link.0)].iter();
            self.link(*link).partial.is_some()
                || users.clone().any(|path| self.full_from[usize::from(path.0)].is_some())
        });
        let free = rate_bps >= self.config.rate_min_bps && self.free_bps(id) >= rate_bps;
        let alone = self.exact && !self.stale && first && !waits && free;
        if alone {
            self.issue(id, rate_bps, self.now_ns);
        }
        alone
    }

    /// Notes that a transfer now stands for its device in the queue of its path: all is planned anew if
    /// others that come later have been given something.
    pub(super) fn note_head(&mut self, path: usize, key: Key) {
        self.stale |= self.full_from[path].is_none_or(|full_from| key < full_from);
    }
}

const FIRST: TransferId = TransferId { device: DeviceId(0), number: 0 };
