//! The slots that are in use, by host, and the epochs between which they hold.
use super::SlotQp;
use super::session::Event;
use super::slot_qp::Outcome;
use super::slots::Slots;
use std::collections::BTreeMap;
use std::time::Instant;
use tokio::sync::mpsc::Sender;

/// See the module.
pub(super) struct SlotEnds {
    pub(super) machine: Slots,
    /// Those in use, with their numbers.
    pub(super) ends: BTreeMap<u32, (u32, SlotQp)>,
    /// The epoch of each host with a session.
    pub(super) epochs: BTreeMap<u32, u32>,
    /// Messages that went either way.
    pub(super) written: u64,
    pub(super) sent: u64,
    pub(super) events: Sender<Event>,
    /// Ends that are to be ended where nobody waits for it.
    pub(super) over: Vec<SlotQp>,
}

impl SlotEnds {
    /// Tells of what is written here as events; without `has_slots` nothing ever is.
    pub(super) fn new(has_slots: bool, events: Sender<Event>) -> Self {
        Self {
            machine: Slots::new(has_slots),
            ends: BTreeMap::new(),
            epochs: BTreeMap::new(),
            written: 0,
            sent: 0,
            events,
            over: Vec::new(),
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.machine.due()
    }

    /// A host has a session, of this epoch of it.
    pub(super) fn meet(&mut self, host: u32, epoch: u32) {
        self.forget(host);
        self.epochs.insert(host, epoch);
    }

    /// The session of a host has ended.
    pub(super) fn forget(&mut self, host: u32) {
        self.machine.forget(host);
        self.epochs.remove(&host);
        self.end(host);
    }

    /// Takes the end of a host out of use.
    pub(super) fn end(&mut self, host: u32) {
        self.over.extend(self.ends.remove(&host).map(|(_, end)| end));
    }

    pub(super) fn heard_ready(&mut self, host: u32, number: u32) {
        self.machine.heard_ready(host, number);
    }

    /// Writes a message into the slot of a host, if it has any.
    pub(super) fn write(&mut self, ours: u32, to: u32, message: &[u8]) -> bool {
        let Some(theirs) = self.epochs.get(&to).copied() else { return false };
        let Some(number) = self.machine.end(Instant::now(), to) else { return false };
        let Some((_, end)) = self.ends.get_mut(&to).filter(|end| end.0 == number) else {
            return false;
        };
        let outcome = end.write((ours, theirs), message);
        if outcome == Outcome::Failed {
            tracing::warn!(host = to, "a WRITE into its slot failed: rounds go by the session");
            self.machine.failed(to, number);
            self.end(to);
        }
        outcome == Outcome::Written
    }
}
