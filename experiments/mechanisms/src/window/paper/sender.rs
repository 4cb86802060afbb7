//! The sending end.
use super::ack::{AckThread, Window};
use super::{Immediate, ImmediateFormat, blocks_bytes};
use crate::paper::{PaperHeader, PaperLayout};
use crate::{ClaimError, Counts, EndError, Helper, Offer, Port, RemoteMemory, SendEnd, SetupError};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::{CqWatch, Doorbell};
use catchment_verbs::{
    Completion, Cq, Mr, Payload, RemoteAddr, SendOp, SendWr, Sge, VerbsError, Watch,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const INSIDE: &str = "a block inside of the checked memory";

/// The sending end of [`super::SwPaper`]. One thread at a time uses it.
pub struct SwPaperSender {
    layout: PaperLayout,
    format: ImmediateFormat,
    window: Arc<Window>,
    cq: Arc<dyn Cq>,
    blocks: Arc<dyn Mr>,
    remote: RemoteMemory,
    head: u64,
    done: u64,
    /// Until a thread of its own has it.
    acks: Option<AckThread>,
    claims: u64,
    counts: Counts,
    wants_completion: bool,
}

#[derive(Debug)]
#[must_use = "a block that is claimed and not committed is not sent"]
pub struct SwPaperClaim {
    number: u64,
    device: u8,
    bytes: u32,
}

impl SwPaperSender {
    pub(super) fn new(
        layout: PaperLayout,
        port: Port,
        peer: &Offer,
    ) -> Result<SwPaperSender, SetupError> {
        let remote = peer.memory(0, "the blocks", blocks_bytes(&layout))?;
        let acks = port.mr(0, "acknowledgements", 0)?;
        let blocks = port.mr(1, "send blocks", blocks_bytes(&layout))?;
        let bell = Arc::new(Doorbell::new().map_err(|e| VerbsError::os("an event counter", e))?);
        let window = Arc::new(Window::new(layout.blocks(), port.qp, bell));
        let watch = CqWatch::new(Arc::clone(&port.recv_cq), port.channel);
        let acks = AckThread::new(Arc::clone(&window), port.recv_cq, acks, Arc::new(watch))?;
        Ok(SwPaperSender {
            format: ImmediateFormat::new(layout.blocks()),
            layout,
            window,
            cq: port.send_cq,
            blocks,
            remote,
            head: 0,
            done: 0,
            acks: Some(acks),
            claims: 0,
            counts: Counts::default(),
            wants_completion: false,
        })
    }

    fn is_full(&self) -> bool {
        let tail = self.window.tail.load(Ordering::Acquire);
        self.head - tail >= u64::from(self.layout.blocks())
    }

    /// Takes completions of sends, when the queue has no room for another.
    fn poll(&mut self) -> Result<(), EndError> {
        let mut out = [Completion::EMPTY];
        while self.done < self.head && self.cq.poll(&mut out)? > 0 {
            let [completion] = out;
            completion.result.map_err(EndError::from)?;
            self.done = completion.wr_id;
        }
        Ok(())
    }

    /// Takes acknowledgements, where no other thread does.
    fn take_acks(&mut self) -> Result<(), EndError> {
        let Some(acks) = &self.acks else {
            return Ok(());
        };
        while acks.take()? {}
        Ok(())
    }

    /// Returns whether the next block may be filled: its place was acknowledged, and the request
    /// that read it is done.
    fn has_room(&mut self) -> Result<bool, EndError> {
        self.window.broken.check()?;
        if self.is_full() {
            self.take_acks()?;
        }
        if self.is_full() {
            self.wants_completion = false;
            return Ok(false);
        }
        if self.head - self.done >= u64::from(self.layout.blocks()) {
            self.poll()?;
        }
        self.wants_completion = self.head - self.done >= u64::from(self.layout.blocks());
        Ok(!self.wants_completion)
    }

    #[cold]
    fn refuse(&mut self) -> ClaimError {
        self.counts.would_blocks += 1;
        match self.window.check() {
            Ok(()) => ClaimError::WouldBlock,
            Err(error) => error.into(),
        }
    }

    fn position(&self) -> u32 {
        (self.head % u64::from(self.layout.blocks())) as u32
    }

    fn offset(&self) -> usize {
        self.position() as usize * self.layout.stride()
    }

    fn post(&mut self, bytes: u32) -> Result<(), EndError> {
        let offset = self.offset() as u64;
        let sge = [Sge {
            addr: self.blocks.addr() + offset,
            bytes: bytes + PaperLayout::HEADER_BYTES as u32,
            lkey: self.blocks.lkey(),
        }];
        let to = RemoteAddr { addr: self.remote.addr + offset, rkey: self.remote.rkey };
        let imm = self.format.encode(Immediate { position: self.position(), bytes });
        let request = SendWr::new(self.head + 1, SendOp::WriteImm(to, imm), Payload::Sges(&sge));
        self.window.qp().post_send(&[request])?;
        self.head += 1;
        Ok(())
    }
}

impl SendEnd for SwPaperSender {
    type Claim = SwPaperClaim;

    fn claim(&mut self, stream: u32, bytes: u32) -> Result<SwPaperClaim, ClaimError> {
        let limit = self.layout.payload_bytes();
        if bytes > limit {
            return Err(ClaimError::Length { asked: bytes, limit, exactly: false });
        }
        let Ok(device) = u8::try_from(stream) else {
            return Err(ClaimError::Stream { stream, limit: 1 << u8::BITS });
        };
        match self.has_room() {
            Ok(true) => {}
            Ok(false) => return Err(self.refuse()),
            Err(error) => return Err(self.window.broken.set(error).into()),
        }
        self.claims += 1;
        Ok(SwPaperClaim { number: self.claims, device, bytes })
    }

    fn memory<'a>(&'a self, claim: &'a SwPaperClaim) -> VolatileSlice<'a> {
        let offset = self.offset() + PaperLayout::HEADER_BYTES;
        self.blocks.region().slice(offset, claim.bytes as usize).expect(INSIDE)
    }

    fn commit(&mut self, claim: SwPaperClaim, packet: u64) -> Result<(), EndError> {
        if claim.number != self.claims {
            return Err(EndError::StaleClaim);
        }
        // No second commit of it.
        self.claims += 1;
        let header = PaperHeader { device: claim.device, packet: packet as u16 };
        self.blocks.region().whole().write_at(self.offset(), &header.encode()).expect(INSIDE);
        self.post(claim.bytes).map_err(|e| self.window.broken.set(e))?;
        self.counts.blocks += 1;
        self.counts.payload_bytes += u64::from(claim.bytes);
        Ok(())
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.poll()
            .and_then(|()| self.take_acks())
            .map_err(|error| self.window.broken.set(error))?;
        self.window.check()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        if self.wants_completion {
            return None;
        }
        Some(match &self.acks {
            Some(acks) => acks.cq_watch(),
            None => Arc::clone(&self.window.bell) as Arc<dyn Watch>,
        })
    }

    /// The thread for acknowledgements ([`AckThread`]).
    fn helper(&mut self) -> Option<Box<dyn Helper>> {
        Some(Box::new(self.acks.take()?))
    }

    fn counts(&self) -> Counts {
        Counts { interactions: self.counts.blocks, ..self.counts }
    }
}
