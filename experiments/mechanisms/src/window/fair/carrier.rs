//! How the sender's blocks get over: by requests, or filled in place.
use crate::{EndError, RemoteMemory, SendQueue};
use catchment_channel::geometry::{Geometry, INSIDE};
use catchment_transfer::header::{HEADER_BYTES, encode_trailer};
use catchment_transfer::layout::TRAILER_BYTES;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Mr, Payload, Qp, QpState, RemoteAddr, RemoteWindow, SendOp, SendWr, Sge};
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

/// A block ready to go: its trailer and where it lies.
pub(super) struct Outgoing {
    pub(super) place: u32,
    pub(super) room_bytes: u32,
    pub(super) trailer_words: [u64; catchment_transfer::protocol::HEADER_WORDS],
    pub(super) tail: u64,
    /// Nothing can follow it before something came back.
    pub(super) last: bool,
}

impl Carrier {
    /// The memory that blocks are filled in.
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
    pub(super) fn send(&mut self, geometry: &Geometry, block: &Outgoing) -> Result<(), EndError> {
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

    /// Notices the end of the session where no request would.
    pub(super) fn check(&self) -> Result<(), EndError> {
        let gone = match self {
            Self::Requests(requests) => requests.queue.qp.state() == QpState::Err,
            Self::InPlace(place) => {
                !place.window.bell.is_valid() || place.qp.state() == QpState::Err
            }
        };
        if gone { Err(EndError::PeerGone) } else { Ok(()) }
    }

    /// Returns whether a completion is awaited, for which no doorbell rings.
    pub(super) fn awaits_completion(&self) -> bool {
        match self {
            Self::Requests(requests) => requests.queue.awaits_completion(),
            Self::InPlace(_) => false,
        }
    }
}

impl InPlace {
    #[inline]
    fn publish(&self, geometry: &Geometry, block: &Outgoing) {
        let memory = self.window.memory.memory();
        let trailer = encode_trailer(&block.trailer_words, 0);
        let offset = geometry.trailer_offset(block.place);
        memory.write_at(offset, &trailer[..HEADER_BYTES]).expect(INSIDE);
        let tail = memory.atomic_u64(geometry.tail_offset(block.place));
        tail.expect(INSIDE).store(block.tail.to_le(), Ordering::Release);
        self.window.bell.ring();
    }
}

impl Requests {
    /// A send block may be filled again when its slot came back and its request is done: only the
    /// completion says that the device does not read it any more.
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
    fn send(&mut self, geometry: &Geometry, block: &Outgoing) -> Result<(), EndError> {
        let memory = self.blocks.region().whole();
        let trailer = encode_trailer(&block.trailer_words, block.tail);
        let trailer_offset = geometry.trailer_offset(block.place);
        memory.write_at(trailer_offset, &trailer).expect(INSIDE);
        let offset = (trailer_offset - block.room_bytes as usize) as u64;
        let sge = [Sge {
            addr: self.blocks.addr() + offset,
            bytes: block.room_bytes + TRAILER_BYTES,
            lkey: self.blocks.lkey(),
        }];
        let to = RemoteAddr { addr: self.remote.addr + offset, rkey: self.remote.rkey };
        let op = if self.imm { SendOp::WriteImm(to, block.place) } else { SendOp::Write(to) };
        self.post(SendWr::new(self.queue.posted + 1, op, Payload::Sges(&sge)), block)
    }

    /// Signaled when nothing can follow, so that the sender learns that its blocks are done; else
    /// as often as the queue needs it.
    #[inline]
    fn post(&mut self, mut request: SendWr<'_>, block: &Outgoing) -> Result<(), EndError> {
        request.signaled = block.last || self.queue.is_due(1);
        self.queue.post(&[request])?;
        self.request_of[block.place as usize] = self.queue.posted;
        Ok(())
    }
}
