//! The sending end.
use super::carrier::{Carrier, InPlace, Outgoing, Requests};
use super::credit::Credit;
use super::{Form, SwFair, credit_bytes};
use crate::{ClaimError, EndError, Offer, Port, SendQueue, SetupError, SlotSender, Slots};
use catchment_channel::geometry::{Arrived, Geometry, INSIDE};
use catchment_transfer::layout::padded;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Mr, Watch};
use std::sync::Arc;

/// The sending end of [`SwFair`].
pub type SwFairSender = SlotSender<WindowSlots>;

/// The slots of all windows.
pub struct WindowSlots {
    geometry: Geometry,
    carrier: Carrier,
    /// Where the receiver writes credits.
    written: Arc<dyn Mr>,
    credit_bytes: usize,
    windows: Box<[Credit]>,
    /// The last claim was refused for lack of a completion, for which no doorbell rings.
    wants_completion: bool,
}

impl WindowSlots {
    pub(super) fn sender(
        sw: &SwFair,
        port: Port,
        peer: &Offer,
    ) -> Result<SwFairSender, SetupError> {
        let geometry = sw.geometry()?;
        let blocks = geometry.blocks();
        let credit_bytes = credit_bytes(sw.form, blocks);
        let written = port.mr(0, "the credits", credit_bytes * geometry.windows() as usize)?;
        let remote = peer.memory(0, "the slots", geometry.total_bytes())?;
        let carrier = if sw.form == Form::TailInPlace {
            let window = port.qp.map_remote(remote.addr, remote.bytes, remote.rkey)?;
            Carrier::InPlace(InPlace { window, qp: port.qp })
        } else {
            Carrier::Requests(Box::new(Requests {
                blocks: port.mr(1, "send blocks", geometry.total_bytes())?,
                queue: SendQueue::new(port.qp, port.send_cq, port.queues.max_send_wr),
                remote,
                imm: sw.form.has_imm(),
                request_of: vec![0; geometry.places() as usize].into(),
            }))
        };
        let selective = sw.form.is_selective();
        let slots = Self {
            geometry,
            carrier,
            written,
            credit_bytes,
            windows: (0..geometry.windows()).map(|_| Credit::new(blocks, selective)).collect(),
            wants_completion: false,
        };
        Ok(SlotSender::over(slots, sw.shape.payload_bytes))
    }

    /// Returns a free slot of a window; reads the credit only if none is known.
    #[inline]
    fn free_slot(&mut self, window: u32) -> Result<Option<u32>, EndError> {
        if let Some(slot) = self.windows[window as usize].next_slot() {
            return Ok(Some(slot));
        }
        let offset = window as usize * self.credit_bytes;
        let written = self.written.region().slice(offset, self.credit_bytes);
        let credit = &mut self.windows[window as usize];
        credit.read(&written.expect(INSIDE))?;
        Ok(credit.next_slot())
    }
}

/// A slot of a window.
#[derive(Debug, Clone, Copy)]
pub struct WindowSlot {
    window: u32,
    slot: u32,
}

impl Slots for WindowSlots {
    type Slot = WindowSlot;
    const INTERACTIONS: u64 = 1;

    #[inline]
    fn find(&mut self, stream: u32) -> Result<Option<WindowSlot>, ClaimError> {
        let window = stream % self.geometry.windows();
        self.wants_completion = false;
        let Some(slot) = self.free_slot(window)? else { return Ok(None) };
        let may_fill = self.carrier.may_fill(self.geometry.place(window, slot))?;
        self.wants_completion = !may_fill;
        Ok(may_fill.then_some(WindowSlot { window, slot }))
    }

    #[inline]
    fn memory(&self, slot: WindowSlot, bytes: u32) -> VolatileSlice<'_> {
        let place = self.geometry.place(slot.window, slot.slot);
        self.geometry.payload(self.carrier.memory(), place, padded(bytes), bytes)
    }

    #[inline]
    fn send(&mut self, slot: WindowSlot, block: &Arrived) -> Result<(), EndError> {
        let credit = &mut self.windows[slot.window as usize];
        let tail = credit.sent() + 1;
        credit.use_slot(slot.slot);
        let outgoing = Outgoing {
            place: self.geometry.place(slot.window, slot.slot),
            block,
            tail,
            last: credit.next_slot().is_none(),
        };
        self.carrier.send(&self.geometry, &outgoing)
    }

    fn progress(&mut self) -> Result<(), EndError> {
        self.carrier.progress()
    }

    fn check(&self) -> Result<(), EndError> {
        self.carrier.check()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        if self.wants_completion && self.carrier.awaits_completion() {
            return None;
        }
        self.written.watch()
    }
}
