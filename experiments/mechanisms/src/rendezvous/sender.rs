//! The sending end.
use super::receives::Receives;
use super::{AddressNotice, CompletionNotice, Rendezvous, receive_list, receives};
use crate::{
    ClaimError, Counts, EndError, FirstError, Offer, PeerFault, Port, RemoteMemory, SendEnd,
    SendQueue, SetupError,
};
use catchment_channel::geometry::{Arrived, Geometry, INSIDE, header_words};
use catchment_transfer::HeaderError;
use catchment_transfer::header::encode_trailer;
use catchment_transfer::layout::{TRAILER_BYTES, padded};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Mr, Payload, QpState, RemoteAddr, SendOp, SendWr, Sge, Watch};
use std::collections::VecDeque;
use std::sync::Arc;

/// The sending end of [`Rendezvous`]. One thread at a time uses it.
pub struct RendezvousSender {
    geometry: Geometry,
    payload_bytes: u32,
    queue: SendQueue,
    receives: Receives,
    watch: Arc<CqWatch>,
    blocks: Arc<dyn Mr>,
    remote: RemoteMemory,
    /// Slots that the receiver announced, in the order in which it did.
    announced: VecDeque<u32>,
    slots: Box<[Slot]>,
    claims: u64,
    counts: Counts,
    wants_completion: bool,
    broken: FirstError,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The receiver announced it, and no block was sent there since.
    announced: bool,
    /// The request that reads its send block.
    request: u64,
}

/// A claimed block of a [`RendezvousSender`].
#[derive(Debug)]
#[must_use = "a block that is claimed and not committed is not sent"]
pub struct RendezvousClaim {
    number: u64,
    slot: u32,
    stream: u32,
    bytes: u32,
}

impl RendezvousSender {
    pub(super) fn new(
        mechanism: &Rendezvous,
        mut port: Port,
        peer: &Offer,
    ) -> Result<RendezvousSender, SetupError> {
        let geometry = mechanism.geometry()?;
        let blocks = geometry.blocks();
        let buffers = port.mr(0, "notices", 0)?;
        let (count, list) = (receives(blocks), receive_list(blocks));
        let receives = Receives::new(Arc::clone(&port.recv_cq), buffers, count, list);
        receives.post(&mut *port.qp)?;
        let watch = CqWatch::new(Arc::clone(&port.recv_cq), Arc::clone(&port.channel));
        Ok(RendezvousSender {
            payload_bytes: mechanism.shape.payload_bytes,
            blocks: port.mr(1, "send blocks", geometry.total_bytes())?,
            remote: peer.memory(0, "the slots", geometry.total_bytes())?,
            queue: SendQueue::new(port.qp, port.send_cq, port.queues.max_send_wr),
            receives,
            watch: Arc::new(watch),
            announced: VecDeque::with_capacity(blocks as usize),
            slots: vec![Slot::default(); blocks as usize].into(),
            geometry,
            claims: 0,
            counts: Counts::default(),
            wants_completion: false,
            broken: FirstError::default(),
        })
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

    /// The slot that a notice means. It must be one of the receiver's, and not announced already.
    fn announced_slot(&self, notice: &AddressNotice) -> Result<u32, PeerFault> {
        let error = PeerFault::Address { addr: notice.addr };
        let slot_bytes = self.geometry.block_bytes();
        let offset = notice.addr.checked_sub(self.remote.addr).ok_or(error)?;
        let slot = offset / u64::from(slot_bytes);
        let is_slot = offset.is_multiple_of(slot_bytes.into()) && slot < self.slots.len() as u64;
        let is_ours = notice.rkey == self.remote.rkey && notice.bytes == slot_bytes;
        if is_slot && is_ours && !self.slots[slot as usize].announced {
            return Ok(slot as u32);
        }
        Err(error)
    }

    fn may_fill(&self, slot: u32) -> bool {
        self.queue.is_done(self.slots[slot as usize].request) && self.queue.has_room(2)
    }

    #[cold]
    fn refuse(&mut self) -> ClaimError {
        self.counts.would_blocks += 1;
        match self.check() {
            Ok(()) => ClaimError::WouldBlock,
            Err(error) => self.broken.set(error).into(),
        }
    }

    /// Notices the end of the session where no request would.
    fn check(&self) -> Result<(), EndError> {
        if self.queue.qp.state() == QpState::Err {
            return Err(EndError::PeerGone);
        }
        Ok(())
    }

    /// A slot that may be filled and sent now.
    fn usable_slot(&mut self) -> Result<Option<u32>, EndError> {
        self.wants_completion = false;
        if self.announced.is_empty() {
            self.take_notices()?;
        }
        let Some(&slot) = self.announced.front() else {
            return Ok(None);
        };
        if !self.may_fill(slot) {
            self.queue.poll()?;
        }
        self.wants_completion = !self.may_fill(slot);
        Ok((!self.wants_completion).then_some(slot))
    }

    /// Whether the next block needs a completion first, as far as is known.
    fn next_waits(&self) -> bool {
        let is_read = |slot: &u32| !self.queue.is_done(self.slots[*slot as usize].request);
        self.announced.front().is_none_or(is_read)
    }

    /// Posts the block and the notice that it is there. The notice is signaled when the next block
    /// has no slot or must wait until its send block was read, and when the queue needs it.
    fn post(&mut self, slot: u32, room_bytes: u32) -> Result<(), EndError> {
        let offset = self.geometry.trailer_offset(slot) - room_bytes as usize;
        let bytes = room_bytes + TRAILER_BYTES;
        let sge =
            [Sge { addr: self.blocks.addr() + offset as u64, bytes, lkey: self.blocks.lkey() }];
        let to = RemoteAddr { addr: self.remote.addr + offset as u64, rkey: self.remote.rkey };
        let notice = CompletionNotice {
            addr: self.remote.addr + self.geometry.slot_offset(slot) as u64,
            bytes,
        };
        let notice = notice.encode();
        let data = SendWr::new(0, SendOp::Write(to), Payload::Sges(&sge)).unsignaled();
        let mut done = SendWr::new(self.queue.posted() + 2, SendOp::Send, Payload::Inline(&notice));
        done.signaled = self.next_waits() || self.queue.is_due(2);
        self.queue.post(&[data, done])?;
        self.slots[slot as usize].request = self.queue.posted();
        Ok(())
    }
}

impl SendEnd for RendezvousSender {
    type Claim = RendezvousClaim;

    fn claim(&mut self, stream: u32, bytes: u32) -> Result<RendezvousClaim, ClaimError> {
        self.geometry.check_length(bytes, self.payload_bytes)?;
        self.broken.check()?;
        let slot = match self.usable_slot() {
            Ok(Some(slot)) => slot,
            Ok(None) => return Err(self.refuse()),
            Err(error) => return Err(self.broken.set(error).into()),
        };
        self.claims += 1;
        Ok(RendezvousClaim { number: self.claims, slot, stream, bytes })
    }

    fn memory<'a>(&'a self, claim: &'a RendezvousClaim) -> VolatileSlice<'a> {
        let memory = self.blocks.region().whole();
        let room_bytes = padded(claim.bytes);
        self.geometry.payload(memory, claim.slot, room_bytes, claim.bytes)
    }

    fn commit(&mut self, claim: RendezvousClaim, packet: u64) -> Result<(), EndError> {
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        if packet == u64::MAX {
            return Err(EndError::Packet(HeaderError::PacketNumber(packet)));
        }
        // No second commit of it.
        self.claims += 1;
        self.announced.pop_front();
        self.slots[claim.slot as usize].announced = false;
        let header = Arrived {
            stream: claim.stream,
            packet,
            bytes: claim.bytes,
            room_bytes: padded(claim.bytes),
        };
        let trailer = encode_trailer(&header_words(&header), 0);
        let memory = self.blocks.region().whole();
        let offset = self.geometry.trailer_offset(claim.slot);
        memory.write_at(offset, &trailer).expect(INSIDE);
        let posted = self.post(claim.slot, header.room_bytes);
        posted.map_err(|error| self.broken.set(error))?;
        self.counts.blocks += 1;
        self.counts.payload_bytes += u64::from(claim.bytes);
        Ok(())
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.broken.check()?;
        let result = self.queue.poll().and_then(|()| self.take_notices());
        let result = result.and_then(|()| self.check());
        result.map_err(|error| self.broken.set(error))
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        if self.wants_completion {
            return None;
        }
        Some(Arc::clone(&self.watch) as Arc<dyn Watch>)
    }

    /// Two interactions a block: the data, and the notice that they are there.
    fn counts(&self) -> Counts {
        Counts { interactions: 2 * self.counts.blocks, ..self.counts }
    }
}
