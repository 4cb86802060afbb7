//! The sending end.
use super::receives::Receives;
use super::{AddressNotice, CompletionNotice, Rendezvous, slot_at};
use crate::{
    ClaimError, EndError, Offer, PeerFault, Port, RemoteMemory, SendQueue, SetupError, SlotSender,
    Slots,
};
use catchment_channel::geometry::{Arrived, Geometry};
use catchment_transfer::layout::{TRAILER_BYTES, padded};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Mr, Payload, SendOp, SendWr, Sge, Watch};
use std::collections::VecDeque;
use std::sync::Arc;

/// The sending end of [`Rendezvous`].
pub type RendezvousSender = SlotSender<AnnouncedSlots>;

/// The slots that the receiver announces.
pub struct AnnouncedSlots {
    geometry: Geometry,
    queue: SendQueue,
    receives: Receives,
    watch: Arc<CqWatch>,
    blocks: Arc<dyn Mr>,
    remote: RemoteMemory,
    /// Slots that the receiver announced, in the order in which it did.
    announced: VecDeque<u32>,
    slots: Box<[Slot]>,
    wants_completion: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The receiver announced it, and no block was sent there since.
    announced: bool,
    /// The request that reads its send block.
    request: u64,
}

impl AnnouncedSlots {
    pub(super) fn sender(
        mechanism: &Rendezvous,
        mut port: Port,
        peer: &Offer,
    ) -> Result<RendezvousSender, SetupError> {
        let geometry = mechanism.geometry()?;
        let blocks = geometry.blocks();
        let receives = Receives::new(&mut port, blocks)?;
        let watch = CqWatch::new(Arc::clone(&port.recv_cq), Arc::clone(&port.channel));
        let slots = Self {
            geometry,
            blocks: port.mr(1, "send blocks", geometry.total_bytes())?,
            remote: peer.memory(0, "the slots", geometry.total_bytes())?,
            queue: SendQueue::new(port.qp, port.send_cq, port.queues.max_send_wr),
            receives,
            watch: Arc::new(watch),
            announced: VecDeque::with_capacity(blocks as usize),
            slots: vec![Slot::default(); blocks as usize].into(),
            wants_completion: false,
        };
        Ok(SlotSender::over(slots, mechanism.shape.payload_bytes))
    }

    fn take_notices(&mut self) -> Result<(), EndError> {
        while let Some(notice) = self.receives.take()? {
            let slot = self.announced_slot(&AddressNotice::decode(&notice))?;
            self.slots[slot as usize].announced = true;
            self.announced.push_back(slot);
        }
        if self.receives.are_due() {
            self.receives.post(&mut *self.queue.qp)?;
        }
        Ok(())
    }

    /// Returns the slot named by a notice: one of the receiver's that is not announced already.
    fn announced_slot(&self, notice: &AddressNotice) -> Result<u32, PeerFault> {
        let fits = notice.rkey == self.remote.rkey && notice.bytes == self.geometry.block_bytes();
        slot_at(&self.geometry, self.remote.addr, notice.addr)
            .filter(|slot| fits && !self.slots[*slot as usize].announced)
            .ok_or(PeerFault::Address(notice.addr))
    }

    fn may_fill(&self, slot: u32) -> bool {
        self.queue.is_done(self.slots[slot as usize].request) && self.queue.has_room(2)
    }

    /// Returns whether the next block is known to need a completion first.
    fn next_waits(&self) -> bool {
        let is_read = |slot: &u32| !self.queue.is_done(self.slots[*slot as usize].request);
        self.announced.front().is_none_or(is_read)
    }

    /// Posts the block and its notice. The notice is signaled when the next block has no slot or must
    /// wait until its send block was read, and when the queue needs it.
    fn post(&mut self, slot: u32, room_bytes: u32) -> Result<(), EndError> {
        let offset = self.geometry.trailer_offset(slot) - room_bytes as usize;
        let bytes = room_bytes + TRAILER_BYTES;
        let sge =
            [Sge { addr: self.blocks.addr() + offset as u64, bytes, lkey: self.blocks.lkey() }];
        let to = SendOp::Write(self.remote.at(offset));
        let addr = self.remote.at(self.geometry.slot_offset(slot)).addr;
        let notice = CompletionNotice { addr, bytes }.encode();
        let data = SendWr::new(0, to, Payload::Sges(&sge)).unsignaled();
        let mut done = SendWr::new(self.queue.posted + 2, SendOp::Send, Payload::Inline(&notice));
        done.signaled = self.next_waits() || self.queue.is_due(2);
        self.queue.post(&[data, done])?;
        self.slots[slot as usize].request = self.queue.posted;
        Ok(())
    }
}

impl Slots for AnnouncedSlots {
    type Slot = u32;
    /// The data, and its notice.
    const INTERACTIONS: u64 = 2;

    fn find(&mut self, _: u32) -> Result<Option<u32>, ClaimError> {
        self.wants_completion = false;
        if self.announced.is_empty() {
            self.take_notices()?;
        }
        let Some(&slot) = self.announced.front() else { return Ok(None) };
        if !self.may_fill(slot) {
            self.queue.poll()?;
        }
        self.wants_completion = !self.may_fill(slot);
        Ok((!self.wants_completion).then_some(slot))
    }

    fn memory(&self, slot: u32, bytes: u32) -> VolatileSlice<'_> {
        self.geometry.payload(self.blocks.region().whole(), slot, padded(bytes), bytes)
    }

    fn send(&mut self, slot: u32, block: &Arrived) -> Result<(), EndError> {
        self.announced.pop_front();
        self.slots[slot as usize].announced = false;
        self.geometry.seal(&self.blocks.region().whole(), slot, block, 0);
        self.post(slot, block.room_bytes)
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.queue.poll()?;
        self.take_notices()
    }

    fn check(&self) -> Result<(), EndError> {
        self.queue.check()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        (!self.wants_completion).then(|| Arc::clone(&self.watch) as Arc<dyn Watch>)
    }
}
