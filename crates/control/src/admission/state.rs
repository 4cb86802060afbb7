//! What a transfer does, and the lists that it is in for that.
use super::controller::Controller;
use super::transfer::{Key, State};
use super::{NONE, Pausing, heap};

impl Controller {
    /// Lets a transfer do something else. Before it begins to wait, and as long as it does, its course is
    /// [standing](super::transfer::Course::standing).
    pub(super) fn set_state(&mut self, at: u32, state: State) {
        let transfer = &mut self.transfers[at];
        let before = std::mem::replace(&mut transfer.state, state);
        if before == state {
            return;
        }
        let left = transfer.course.standing_bytes();
        let path = &mut self.paths[usize::from(self.devices.known(transfer.id.device).path.0)];
        let part = path.part;
        if before == State::Waiting {
            path.waiting_bytes = path.waiting_bytes.saturating_sub(left);
        }
        if state == State::Waiting {
            path.waiting_bytes = path.waiting_bytes.saturating_add(left);
        }
        let (id, was_granted) = (transfer.id.device, transfer.revision > 0);
        match (before, state) {
            (State::Waiting, State::Granted) => self.note_served(id, left, false),
            (_, State::Waiting) if was_granted => self.note_served(id, left, true),
            _ => {}
        }
        match (before, state) {
            (_, State::Granted) => self.list_granted(part, at),
            (State::Granted, _) => self.unlist_granted(part, at),
            _ => {}
        }
    }

    fn list_granted(&mut self, part: usize, at: u32) {
        let next = std::mem::replace(&mut self.parts[part].granted, at);
        self.parts[part].running += 1;
        let links = &mut self.transfers[at].links;
        (links.next_granted, links.before_granted) = (next, NONE);
        if next != NONE {
            self.transfers[next].links.before_granted = at;
        }
    }

    fn unlist_granted(&mut self, part: usize, at: u32) {
        let links = self.transfers[at].links;
        self.parts[part].running -= 1;
        if links.before_granted == NONE {
            self.parts[part].granted = links.next_granted;
        } else {
            self.transfers[links.before_granted].links.next_granted = links.next_granted;
        }
        if links.next_granted != NONE {
            self.transfers[links.next_granted].links.before_granted = links.before_granted;
        }
    }

    /// Returns those of a part that have a window.
    pub(super) fn granted(&self, part: usize) -> impl Iterator<Item = u32> {
        let mut at = self.parts[part].granted;
        std::iter::from_fn(move || {
            let one = (at != NONE).then_some(at)?;
            at = self.transfers[one].links.next_granted;
            Some(one)
        })
    }

    /// Puts a transfer where it belongs in the queues if it wants something, or takes it out.
    pub(super) fn requeue(&mut self, at: u32) {
        let rules = &self.config.rules;
        let transfer = &self.transfers[at];
        let wants = match transfer.state {
            State::Waiting => true,
            State::Granted => rules.pausing != Pausing::Never,
            State::Ending | State::Pausing | State::Silent => false,
        };
        self.set_queued(at, wants);
    }

    /// Puts a transfer into the queues where it belongs, or takes it out.
    pub(super) fn set_queued(&mut self, at: u32, wants: bool) {
        let (rules, transfer) = (&self.config.rules, &self.transfers[at]);
        let (overtaking, queued) = (rules.overtaking, transfer.flags.queued);
        let key = if wants { transfer.place(rules.order) } else { transfer.key };
        if wants == queued && key == transfer.key {
            return;
        }
        let device = self.devices.known_mut(transfer.id.device);
        let path = usize::from(device.path.0);
        let mut head = device.head;
        let before = (head != NONE).then(|| (self.transfers[head].key, head));
        if queued {
            head = heap::remove(&mut self.transfers, head, at, overtaking);
        }
        let transfer = &mut self.transfers[at];
        (transfer.flags.queued, transfer.key) = (wants, key);
        if wants {
            head = heap::insert(&mut self.transfers, head, at, overtaking);
        }
        device.head = head;
        let after = (head != NONE).then(|| (self.transfers[head].key, head));
        if before == after {
            return;
        }
        if before.is_none() || after.is_none() {
            self.count_wanting(self.transfers[at].id.device, after.is_some());
        }
        if let Some((key, _)) = before {
            self.queues.remove(path, key);
        }
        if let Some((key, other)) = after {
            self.queues.insert(path, key, other);
            if other != at && self.transfers[other].state == State::Waiting {
                self.note_head(path, key);
            }
        }
    }

    /// Notes that a transfer now stands for its device in the queue of its path: all is planned anew if
    /// others that come later have been given something.
    fn note_head(&mut self, path: usize, key: Key) {
        let path = &self.paths[path];
        if path.full_from.is_none_or(|full_from| key < full_from) {
            self.note_stale(path.part);
        }
    }
}
