//! What is on its way to the collector: transfers, each a block or the frames of an event.
use super::arrivals::Arrivals;
use super::gate::NewLink;
use catchment_control::admission::source_side::LocalId;
use catchment_transfer::{Broken, HeldBlock};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Where blocks of a device go.
pub(super) struct Way<'a> {
    pub(super) device: u32,
    pub(super) link: &'a NewLink,
    pub(super) arrivals: &'a mut Arrivals,
}

impl Way<'_> {
    /// Posts a part of a block; returns the count of requests with which it has arrived, or `None` if the queue has no
    /// room for it now.
    fn post(&mut self, block: &HeldBlock, at: u32, bytes: u32) -> Result<Option<u64>, Broken> {
        let sender = &self.link.sender;
        if at == 0 {
            self.link.gate.begin(sender, block);
        }
        let done = sender.post_part(block.slot, at, bytes)?;
        if done.is_some() && at == 0 {
            self.arrivals.begun(self.device, block);
        }
        if let Some(done) = done.filter(|_| at + bytes == block.bytes) {
            self.arrivals.posted(self.device, block, done);
        }
        Ok(done)
    }
}

/// A transfer.
pub(super) struct Moving {
    /// What is not posted whole, in order.
    pub(super) blocks: VecDeque<HeldBlock>,
    /// Bytes of the first of them that were posted.
    posted: u32,
    pub(super) rate_bps: u64,
    /// When what it was let go has left at its rate, on the clock of the source.
    pub(super) leaves_ns: u64,
    /// It goes at the rate of its device, after those before it.
    pub(super) shares_rate: bool,
    /// Chunks that were posted: the count of requests with which each has arrived.
    pub(super) parts: VecDeque<u64>,
    /// More blocks come: its event goes on.
    pub(super) is_open: bool,
    /// When it will be there, of one that misses its deadline.
    pub(super) missed: Option<Instant>,
}

impl Moving {
    pub(super) fn new(block: HeldBlock, is_open: bool) -> Self {
        let (blocks, parts) = (VecDeque::from([block]), VecDeque::new());
        let (posted, rate_bps, leaves_ns, shares_rate, missed) = (0, 0, 0, false, None);
        Self { blocks, posted, rate_bps, leaves_ns, shares_rate, parts, is_open, missed }
    }

    /// Returns the bytes of its blocks that are not posted.
    pub(super) fn left_bytes(&self) -> u64 {
        let bytes: u64 = self.blocks.iter().map(|block| u64::from(block.bytes)).sum();
        bytes - u64::from(self.posted)
    }

    /// Returns whether nothing of it is to be done any more.
    pub(super) fn is_over(&self) -> bool {
        !self.is_open && self.blocks.is_empty() && self.parts.is_empty()
    }

    /// Returns whether a whole frame can go with it: nothing of it was let go, and it is no event.
    pub(super) fn can_grow(&self) -> bool {
        let is_plain = !self.is_open && self.missed.is_none() && !self.blocks.is_empty();
        is_plain && !self.has_begun() && self.parts.is_empty()
    }

    /// Returns whether a part of its first block was posted.
    pub(super) const fn has_begun(&self) -> bool {
        self.posted > 0
    }

    /// Takes its blocks out: what was posted goes on. Of the first of them a part may have been posted.
    pub(super) fn split(&mut self) -> Self {
        let (blocks, posted) = (std::mem::take(&mut self.blocks), std::mem::take(&mut self.posted));
        self.is_open = false;
        Self { blocks, posted, rate_bps: 0, shares_rate: false, parts: VecDeque::new(), ..*self }
    }

    /// Posts a chunk, over the borders of blocks; returns what the queue has no room for now.
    pub(super) fn post(&mut self, mut way: Way<'_>, chunk_bytes: u64) -> Result<u64, Broken> {
        let (mut left, mut arrives) = (chunk_bytes, None);
        while left > 0 {
            let Some(block) = self.blocks.front() else { break };
            let rest = block.bytes - self.posted;
            let bytes = u32::try_from(left).unwrap_or(u32::MAX).min(rest);
            let Some(done) = way.post(block, self.posted, bytes)? else {
                return Ok(left);
            };
            arrives = Some(done);
            (self.posted, left) = (self.posted + bytes, left - u64::from(bytes));
            if bytes == rest {
                self.blocks.pop_front();
                self.posted = 0;
            }
        }
        self.parts.extend(arrives);
        Ok(0)
    }
}

/// Frames of a device that are one transfer.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// The place of the device.
    pub device: u32,
    /// Packet number of the first frame.
    pub first: u64,
    /// Packet number of the first frame behind the event.
    pub end: u64,
}

/// Events that have not ended, of all devices.
#[derive(Default)]
pub(super) struct Events(BTreeMap<u32, VecDeque<(Event, Option<LocalId>)>>);

/// Where a block belongs.
pub(super) enum Belongs {
    /// It is a transfer of its own.
    Alone,
    /// To an event that is not asked for yet: so many frames come from this one on.
    First(u64),
    /// To an event that was asked for.
    To(LocalId),
}

impl Events {
    /// Takes a new one, which ends the one before.
    pub(super) fn add(&mut self, event: Event) {
        let events = self.0.entry(event.device).or_default();
        if let Some((before, _)) = events.back_mut() {
            before.end = before.end.min(event.first);
        }
        events.push_back((event, None));
    }

    /// Returns transfers of events that are over before this block, where it belongs, and whether its event ends
    /// with it.
    pub(super) fn find(&mut self, device: u32, block: &HeldBlock) -> (Vec<LocalId>, Belongs, bool) {
        let (mut over, number) = (Vec::new(), block.packet_number);
        let Some(events) = self.0.get_mut(&device) else { return (over, Belongs::Alone, true) };
        while events.front().is_some_and(|(event, _)| event.end <= number) {
            over.extend(events.pop_front().and_then(|(_, id)| id));
        }
        let Some((event, id)) = events.front().copied().filter(|(event, _)| event.first <= number)
        else {
            return (over, Belongs::Alone, true);
        };
        let ends = block.is_last && number + 1 == event.end;
        if ends {
            events.pop_front();
        }
        (over, id.map_or(Belongs::First(event.end - number), Belongs::To), ends)
    }

    /// Notes the transfer of the event of a device that was found last.
    pub(super) fn asked(&mut self, device: u32, asked: LocalId) {
        if let Some((_, id)) = self.0.get_mut(&device).and_then(VecDeque::front_mut) {
            *id = Some(asked);
        }
    }

    /// Forgets which transfers events have: what comes is asked for anew.
    pub(super) fn forget_transfers(&mut self) {
        self.0.values_mut().flatten().for_each(|(_, id)| *id = None);
    }
}
