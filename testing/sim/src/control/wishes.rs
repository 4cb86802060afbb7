//! What sources ask for, and what is dropped of it.
use super::nodes::{Fate, Message};
use super::world::World;
use catchment_control::admission::source_side::LocalId;

impl World<'_> {
    pub(super) fn wish(&mut self, slot: usize, at: usize) {
        let wish = self.scenario.sources[slot].wishes[at];
        let class = self.scenario.sources[slot].devices[wish.device as usize].1;
        if self.join(slot, wish.device, wish.bytes, wish.age_ns) {
            return;
        }
        let Some(node) = &mut self.sources[slot] else { return };
        node.number += 1;
        let (device, number, bytes) = (wish.device, node.number, wish.bytes);
        let (age_ns, asked_ns) = (wish.age_ns, node.clock.local_ns(self.now_ns));
        node.fates.insert((device, number), Fate { bytes, age_ns, asked_ns, ..Fate::default() });
        self.summary.transfers += 1;
        self.hand(slot, None, Message::Ask { device, number, bytes, age_ns, class });
    }

    /// Lets a wish go with the one before it, if that waits and both are small.
    fn join(&mut self, slot: usize, device: u32, bytes: u64, age_ns: u64) -> bool {
        let Some(node) = &mut self.sources[slot] else { return false };
        let last = node.fates.range_mut((device, 0)..=(device, u64::MAX)).next_back();
        let Some(((_, number), fate)) = last else { return false };
        let id = LocalId { device, number: *number };
        // What a process will do that stands still is not known.
        let runs = node.frozen_until_ns <= self.now_ns && node.inbox.is_empty();
        if !runs || !node.side.may_join(id, bytes, age_ns) {
            return false;
        }
        fate.bytes += bytes;
        self.summary.joined += 1;
        self.hand(slot, None, Message::Join { device, number: id.number, bytes });
        true
    }

    /// What is dropped is never sent, unless a part of it was: then the rest is asked for, and must come.
    pub(super) fn take_drop(&mut self, slot: usize, id: LocalId) {
        let Some(node) = &mut self.sources[slot] else { return };
        let Some(fate) = node.fates.get_mut(&(id.device, id.number)) else { return };
        if fate.finishes || std::mem::replace(&mut fate.over, true) {
            self.faults.push(format!("process {}: {id:?} is dropped: {fate:?}", node.process));
            return;
        }
        self.summary.dropped += 1;
        let left = fate.bytes - fate.sent;
        if fate.sent == 0 || left == 0 {
            return;
        }
        self.summary.finished += 1;
        let age_ns = fate.age_ns + (node.clock.local_ns(self.now_ns) - fate.asked_ns);
        node.number += 1;
        let (device, number) = (id.device, node.number);
        let rest = Fate { bytes: left, finishes: true, ..Fate::default() };
        node.fates.insert((device, number), rest);
        let class = self.scenario.sources[slot].devices[device as usize].1;
        let message = Message::Finish { device, number, bytes: left, age_ns, class };
        node.inbox.push_front(message);
        self.wake_source(slot, self.now_ns);
    }
}
