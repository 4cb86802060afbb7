//! How the sender's blocks get to the receiver: by requests, or filled in place.
use crate::{EndError, RemoteMemory, SendQueue};
use catchment_channel::geometry::{Arrived, Geometry, INSIDE, header_words};
use catchment_transfer::header::{HEADER_BYTES, encode_trailer};
use catchment_transfer::layout::TRAILER_BYTES;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Mr, Payload, Qp, QpState, RemoteWindow, SendOp, SendWr, Sge};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) enum Carrier {
    Requests(Box<Requests>),
    InPlace(InPlace),
}

/// Send blocks, one for every slot, and the queue pair that writes them.
pub(super) struct Requests {
    pub(super) queue: SendQueue,
    pub(super) blocks: Arc<dyn Mr>,
    pub(super) remote: RemoteMemory,
    /// Announce blocks by immediates.
    pub(super) imm: bool,
    /// For every place the number of the request that reads its send block.
    pub(super) request_of: Box<[u64]>,
}

/// The receiver's slots, mapped here.
pub(super) struct InPlace {
    pub(super) window: RemoteWindow,
    /// The connection lives as long as its queue pair.
    pub(super) qp: Box<dyn Qp>,
}

/// A filled block.
pub(super) struct Outgoing<'a> {
    pub(super) place: u32,
    pub(super) block: &'a Arrived,
    pub(super) tail: u64,
    /// The window is full with it.
    pub(super) last: bool,
}

impl Carrier {
    /// Returns the memory in which blocks are filled.
    #[inline]
    pub(super) fn memory(&self) -> VolatileSlice<'_> {
        match self {
            Self::Requests(requests) => requests.blocks.region().whole(),
            Self::InPlace(place) => place.window.memory.memory(),
        }
    }

    /// Returns whether the block in this place may be filled and sent now.
    #[inline]
    pub(super) fn may_fill(&mut self, place: u32) -> Result<bool, EndError> {
        match self {
            Self::Requests(requests) => requests.may_fill(place),
            Self::InPlace(_) => Ok(true),
        }
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        geometry: &Geometry,
        block: &Outgoing<'_>,
    ) -> Result<(), EndError> {
        match self {
            Self::Requests(requests) => requests.send(geometry, block),
            Self::InPlace(place) => {
                place.publish(geometry, block);
                Ok(())
            }
        }
    }

    pub(super) fn progress(&mut self) -> Result<(), EndError> {
        match self {
            Self::Requests(requests) => requests.queue.poll(),
            Self::InPlace(_) => Ok(()),
        }
    }

    /// Detects the end of the session where no request would.
    pub(super) fn check(&self) -> Result<(), EndError> {
        match self {
            Self::Requests(requests) => requests.queue.check(),
            Self::InPlace(place) => place.check(),
        }
    }

    /// Returns whether a completion is outstanding, for which no doorbell rings.
    pub(super) fn awaits_completion(&self) -> bool {
        match self {
            Self::Requests(requests) => requests.queue.awaits_completion(),
            Self::InPlace(_) => false,
        }
    }
}

impl InPlace {
    fn check(&self) -> Result<(), EndError> {
        if self.window.bell.is_valid() && self.qp.state() != QpState::Err {
            return Ok(());
        }
        Err(EndError::PeerGone)
    }

    #[inline]
    fn publish(&self, geometry: &Geometry, block: &Outgoing<'_>) {
        let memory = self.window.memory.memory();
        let trailer = encode_trailer(&header_words(block.block), 0);
        let offset = geometry.trailer_offset(block.place);
        memory.write_at(offset, &trailer[..HEADER_BYTES]).expect(INSIDE);
        let tail = memory.atomic_u64(geometry.tail_offset(block.place));
        tail.expect(INSIDE).store(block.tail.to_le(), Ordering::Release);
        self.window.bell.ring();
    }
}

impl Requests {
    /// Returns whether the send block of a slot that came back may be filled: only the completion of
    /// its request says that the device has read it.
    #[inline]
    fn may_fill(&mut self, place: u32) -> Result<bool, EndError> {
        if self.is_free(place) {
            return Ok(true);
        }
        self.queue.poll()?;
        Ok(self.is_free(place))
    }

    #[inline]
    fn is_free(&self, place: u32) -> bool {
        self.queue.is_done(self.request_of[place as usize]) && self.queue.has_room(1)
    }

    #[inline]
    fn send(&mut self, geometry: &Geometry, block: &Outgoing<'_>) -> Result<(), EndError> {
        let room_bytes = block.block.room_bytes;
        geometry.seal(&self.blocks.region().whole(), block.place, block.block, block.tail);
        let offset = geometry.trailer_offset(block.place) - room_bytes as usize;
        let sge = [Sge {
            addr: self.blocks.addr() + offset as u64,
            bytes: room_bytes + TRAILER_BYTES,
            lkey: self.blocks.lkey(),
        }];
        let to = self.remote.at(offset);
        let op = if self.imm { SendOp::WriteImm(to, block.place) } else { SendOp::Write(to) };
        self.post(SendWr::new(self.queue.posted + 1, op, Payload::Sges(&sge)), block)
    }

    /// Posts a request, signaled when the window is full, so that the sender learns that its blocks are
    /// done; else as often as the queue needs it.
    #[inline]
    fn post(&mut self, mut request: SendWr<'_>, block: &Outgoing<'_>) -> Result<(), EndError> {
        request.signaled = block.last || self.queue.is_due(1);
        self.queue.post(&[request])?;
        self.request_of[block.place as usize] = self.queue.posted;
        Ok(())
    }
}
