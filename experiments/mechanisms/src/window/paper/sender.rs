//! The sending end.
use super::ack::{AckThread, Window};
use super::{Immediate, ImmediateFormat};
use crate::paper::{INSIDE, PaperHeader, PaperLayout, device_of};
use crate::{
    ClaimError, EndError, Helper, Offer, Port, RemoteMemory, SetupError, SlotSender, Slots,
};
use catchment_channel::geometry::Arrived;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::{CqWatch, Doorbell};
use catchment_verbs::{Completion, Cq, Mr, Payload, SendOp, SendWr, Sge, VerbsError, Watch};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The sending end of [`super::SwPaper`].
pub type SwPaperSender = SlotSender<RingSlots>;

/// The positions of the ring, used in turn.
pub struct RingSlots {
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
    wants_completion: bool,
}

impl RingSlots {
    pub(super) fn sender(
        layout: PaperLayout,
        port: Port,
        peer: &Offer,
    ) -> Result<SwPaperSender, SetupError> {
        let remote = peer.memory(0, "the blocks", layout.blocks_bytes())?;
        let acks = port.mr(0, "acknowledgements", 0)?;
        let blocks = port.mr(1, "send blocks", layout.blocks_bytes())?;
        let bell = Arc::new(Doorbell::new().map_err(|e| VerbsError::os("an event counter", e))?);
        let window = Arc::new(Window::new(layout.blocks(), port.qp, bell));
        let watch = CqWatch::new(Arc::clone(&port.recv_cq), port.channel);
        let acks = AckThread::new(Arc::clone(&window), port.recv_cq, acks, Arc::new(watch))?;
        let slots = Self {
            format: ImmediateFormat::new(layout.blocks()),
            layout,
            window,
            cq: port.send_cq,
            blocks,
            remote,
            head: 0,
            done: 0,
            acks: Some(acks),
            wants_completion: false,
        };
        Ok(SlotSender::over(slots, layout.payload_bytes()))
    }

    fn is_full(&self) -> bool {
        let tail = self.window.tail.load(Ordering::Acquire);
        self.head - tail >= u64::from(self.layout.blocks())
    }

    /// Takes completions of sends.
    fn poll(&mut self) -> Result<(), EndError> {
        let mut out = [Completion::EMPTY];
        while self.done < self.head && self.cq.poll(&mut out)? > 0 {
            let [completion] = out;
            completion.result.map_err(|status| self.own(status.into()))?;
            self.done = completion.wr_id;
        }
        Ok(())
    }

    /// Returns why the session ended: a queue of this end that overran, else what was noticed of it.
    /// Requests that were outstanding then fail as if the peer were gone.
    fn own(&self, noticed: EndError) -> EndError {
        let sends = self.cq.poll(&mut []).map(drop).map_err(EndError::from);
        let acks = self.acks.as_ref().map_or(Ok(()), AckThread::check_queue);
        sends.and(acks).err().unwrap_or(noticed)
    }

    /// Takes acknowledgements, unless another thread does.
    fn take_acks(&mut self) -> Result<(), EndError> {
        let Some(acks) = &self.acks else { return Ok(()) };
        while acks.take().map_err(|error| self.own(error))? {}
        Ok(())
    }

    /// Returns whether the next block may be filled: its position was acknowledged, and the request
    /// that reads its send block is done.
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

    fn position(&self) -> u32 {
        (self.head % u64::from(self.layout.blocks())) as u32
    }

    fn offset(&self) -> usize {
        self.position() as usize * self.layout.stride()
    }

    fn post(&mut self, bytes: u32) -> Result<(), EndError> {
        let offset = self.offset();
        let sge = [Sge {
            addr: self.blocks.addr() + offset as u64,
            bytes: bytes + PaperLayout::HEADER_BYTES as u32,
            lkey: self.blocks.lkey(),
        }];
        let to = self.remote.at(offset);
        let imm = self.format.encode(Immediate { position: self.position(), bytes });
        let request = SendWr::new(self.head + 1, SendOp::WriteImm(to, imm), Payload::Sges(&sge));
        self.window.qp.lock().post_send(&[request])?;
        self.head += 1;
        Ok(())
    }
}

impl Slots for RingSlots {
    /// The device; the position is always the next.
    type Slot = u8;
    const INTERACTIONS: u64 = 1;

    fn find(&mut self, stream: u32) -> Result<Option<u8>, ClaimError> {
        let device = device_of(stream)?;
        Ok(self.has_room()?.then_some(device))
    }

    fn memory(&self, _: u8, bytes: u32) -> VolatileSlice<'_> {
        let offset = self.offset() + PaperLayout::HEADER_BYTES;
        self.blocks.region().slice(offset, bytes as usize).expect(INSIDE)
    }

    fn send(&mut self, device: u8, block: &Arrived) -> Result<(), EndError> {
        let header = PaperHeader { device, packet: block.packet as u16 };
        self.blocks.region().whole().write_at(self.offset(), &header.encode()).expect(INSIDE);
        self.post(block.bytes).map_err(|error| self.window.broken.set(error))
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.poll().and_then(|()| self.take_acks()).map_err(|error| self.window.broken.set(error))
    }

    fn check(&self) -> Result<(), EndError> {
        self.window.check().map_err(|error| self.own(error))
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
}
