//! How the sender's blocks get over: by requests, or filled in place.
use super::super::geometry::{Geometry, INSIDE};
use crate::{
    header::{HEADER_BYTES, encode_trailer},
    layout::TRAILER_BYTES,
    mechanism::{EndError, RemoteMemory},
};
use catchment_verbs::{
    Completion, Cq, Mr, Payload, Qp, QpState, RemoteAddr, RemoteWindow, SendOp, SendWr, Sge,
    mem::VolatileSlice,
};
use std::sync::{Arc, atomic::Ordering};

pub(super) enum Carrier {
    Requests(Box<Requests>),
    InPlace(InPlace),
}

/// Send blocks, one for every slot, and the queue pair that writes them.
pub(super) struct Requests {
    pub(super) qp: Box<dyn Qp>,
    pub(super) cq: Arc<dyn Cq>,
    pub(super) blocks: Arc<dyn Mr>,
    pub(super) remote: RemoteMemory,
    /// Announce blocks by immediates.
    pub(super) imm: bool,
    pub(super) max_send_wr: u64,
    /// Requests posted, and requests known to be done.
    pub(super) posted: u64,
    pub(super) done: u64,
    /// Requests posted since the last signaled one.
    pub(super) unsignaled: u64,
    /// Completions that are still to come.
    pub(super) signaled: u32,
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
    pub(super) trailer_words: [u64; crate::commit::HEADER_WORDS],
    pub(super) tail: u64,
    /// Nothing can follow it before something came back.
    pub(super) last: bool,
}

impl Carrier {
    /// The memory that blocks are filled in.
    #[inline]
    pub(super) fn memory(&self) -> VolatileSlice<'_> {
        match self {
            Carrier::Requests(requests) => requests.blocks.region().whole(),
            Carrier::InPlace(place) => place.window.memory.memory(),
        }
    }

    /// Whether the block in this place may be filled and sent now.
    #[inline]
    pub(super) fn may_fill(&mut self, place: u32) -> Result<bool, EndError> {
        match self {
            Carrier::Requests(requests) => requests.may_fill(place),
            Carrier::InPlace(_) => Ok(true),
        }
    }

    #[inline]
    pub(super) fn send(&mut self, geometry: &Geometry, block: &Outgoing) -> Result<(), EndError> {
        match self {
            Carrier::Requests(requests) => requests.send(geometry, block),
            Carrier::InPlace(place) => {
                place.publish(geometry, block);
                Ok(())
            }
        }
    }

    pub(super) fn progress(&mut self) -> Result<(), EndError> {
        match self {
            Carrier::Requests(requests) => requests.poll(),
            Carrier::InPlace(_) => Ok(()),
        }
    }

    /// Notices the end of the session where no request would.
    pub(super) fn check(&self) -> Result<(), EndError> {
        let gone = match self {
            Carrier::Requests(requests) => requests.qp.state() == QpState::Err,
            Carrier::InPlace(place) => {
                !place.window.bell.is_valid() || place.qp.state() == QpState::Err
            }
        };
        if gone {
            Err(EndError::PeerGone)
        } else {
            Ok(())
        }
    }

    /// Whether a completion is awaited, for which no doorbell rings.
    pub(super) fn awaits_completion(&self) -> bool {
        match self {
            Carrier::Requests(requests) => requests.signaled > 0,
            Carrier::InPlace(_) => false,
        }
    }
}

impl InPlace {
    #[inline]
    fn publish(&self, geometry: &Geometry, block: &Outgoing) {
        let memory = self.window.memory.memory();
        let trailer = encode_trailer(&block.trailer_words, 0);
        let offset = geometry.trailer_offset(block.place);
        let header = &trailer[..HEADER_BYTES];
        memory.write_at(offset, header).expect(INSIDE);
        let tail = memory.atomic_u64(geometry.tail_offset(block.place));
        tail.expect(INSIDE)
            .store(block.tail.to_le(), Ordering::Release);
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
        self.poll()?;
        Ok(self.is_free(place))
    }

    #[inline]
    fn is_free(&self, place: u32) -> bool {
        let in_flight = self.posted - self.done;
        self.request_of[place as usize] <= self.done
            && in_flight < self.max_send_wr
            && self.signaled < self.cq.capacity()
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
        let to = RemoteAddr {
            addr: self.remote.addr + offset,
            rkey: self.remote.rkey,
        };
        let op = if self.imm {
            SendOp::WriteImm(to, block.place)
        } else {
            SendOp::Write(to)
        };
        let request = SendWr::new(self.posted + 1, op, Payload::Sges(&sge));
        self.post(request, block)
    }

    /// Signaled when nothing can follow, so that the sender learns that its blocks are done; else
    /// as often as the queue needs it.
    #[inline]
    fn post(&mut self, request: SendWr<'_>, block: &Outgoing) -> Result<(), EndError> {
        let due = (self.unsignaled + 1) * 2 >= self.max_send_wr;
        if block.last || due {
            self.qp.post_send(&[request])?;
            self.signaled += 1;
            self.unsignaled = 0;
        } else {
            self.qp.post_send(&[request.unsignaled()])?;
            self.unsignaled += 1;
        }
        self.posted += 1;
        self.request_of[block.place as usize] = self.posted;
        Ok(())
    }

    /// Takes completions.
    fn poll(&mut self) -> Result<(), EndError> {
        while self.signaled > 0 {
            let mut out = [Completion::EMPTY; 4];
            let n = self.cq.poll(&mut out)?;
            for completion in &out[..n] {
                completion.result.map_err(EndError::from)?;
                self.done = completion.wr_id;
                self.signaled -= 1;
            }
            if n < out.len() {
                break;
            }
        }
        Ok(())
    }
}
