//! What the hub has to do with slots: which way a message of a round goes, and what is written here.
use super::hub::Hub;
use super::message::{FrameError, Slots as Announced, of_epoch};
use super::{Make, SlotNews};
use crate::protocol::By;
use catchment_control::drum::Message as Round;
use std::time::Instant;

impl Hub {
    /// Sends a message of a round: by a WRITE if there is a slot that it fits, else by the session.
    pub(super) fn send_round(&mut self, to: u32, bytes: Vec<u8>) {
        let is_written = self.slots.write(self.ours.epoch, to, &bytes);
        let (by, count) = if is_written {
            (By::Write, &mut self.slots.written)
        } else {
            (By::Session, &mut self.slots.sent)
        };
        *count += 1;
        self.registry.note_way(to, by);
        if !is_written {
            self.registry.send(to, bytes);
        }
    }

    /// Takes what was written into a slot of this host: it is checked as what comes by a session.
    pub(super) fn take_written(&mut self, host: u32, number: u32, bytes: &[u8]) {
        let is_it = self.slots.ends.get(&host).is_some_and(|end| end.0 == number);
        let Some(epoch) = self.slots.epochs.get(&host).copied().filter(|_| is_it) else { return };
        let round = Round::decode(bytes).map_err(|error| FrameError::from(error).to_string());
        match round.and_then(|round| of_epoch(round, epoch)) {
            Ok(round) => self.take_round(host, round),
            Err(reason) => self.registry.turn_away(host, reason),
        }
    }

    /// A peer announces its slots.
    pub(super) fn heard_slots(&mut self, host: u32, theirs: Announced) {
        if self.is_of(host, &theirs.endpoint) {
            self.slots.machine.heard(Instant::now(), host, theirs);
        } else {
            let reason = "the endpoint of its slots is not of its device".to_owned();
            self.registry.turn_away(host, reason);
        }
    }

    /// Takes what became of slots.
    pub(super) fn note_slots(&mut self, news: SlotNews) {
        let slots = &mut self.slots;
        match news {
            SlotNews::Made(host, number, ours) => slots.machine.made(host, number, ours),
            SlotNews::Failed(host, number) => slots.machine.failed(host, number),
            SlotNews::Connected(host, number, mut end) => {
                if let Some(theirs) = slots.epochs.get(&host) {
                    end.tell((host, number), (*theirs, self.ours.epoch), slots.events.clone());
                }
                slots.end(host);
                slots.ends.insert(host, (number, end));
                slots.machine.connected(host, number);
            }
            SlotNews::Break => slots.ends.values_mut().for_each(|(_, end)| end.break_it()),
        }
    }

    /// Does what follows for slots.
    pub(super) fn act_on_slots(&mut self, now: Instant) {
        self.slots.machine.expire(now);
        while let Some(action) = self.slots.machine.next() {
            self.carry_out(action);
        }
        for end in self.slots.over.drain(..) {
            (self.tells.make)(Make::EndSlots(end));
        }
    }
}
