//! The receiving end.
use super::receives::Receives;
use super::{AddressNotice, CompletionNotice, Rendezvous, slot_at};
use crate::shared::all_slots;
use crate::slots::{Released, SlotBlock};
use crate::{
    Counts, EndError, FirstError, InTurn, PeerFault, Port, ReceiveEnd, SendQueue, SetupError,
};
use catchment_channel::geometry::Geometry;
use catchment_transfer::layout::TRAILER_BYTES;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Mr, Payload, SendOp, SendWr, Watch};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The receiving end of [`Rendezvous`]. One thread at a time takes blocks; any thread releases them.
pub struct RendezvousReceiver {
    shared: Arc<Shared>,
    watch: Arc<dyn Watch>,
    counts: Counts,
}

/// What a receiver and its blocks share.
pub struct Shared {
    geometry: Geometry,
    slots: Arc<dyn Mr>,
    receives: Receives,
    /// Whether a slot was announced and no block has arrived there.
    announced: Box<[AtomicBool]>,
    /// Slots to announce.
    free: ArrayQueue<u32>,
    link: InTurn<SendQueue>,
    broken: FirstError,
    notices: AtomicU64,
}

impl RendezvousReceiver {
    pub(super) fn new(mechanism: &Rendezvous, mut port: Port) -> Result<Self, SetupError> {
        let geometry = mechanism.geometry()?;
        let blocks = geometry.blocks();
        let receives = Receives::new(&mut port, blocks)?;
        let slots = port.mr(1, "the slots", geometry.total_bytes())?;
        let link = SendQueue::new(port.qp, port.send_cq, port.queues.max_send_wr);
        Ok(Self {
            shared: Arc::new(Shared {
                geometry,
                slots,
                receives,
                announced: (0..blocks).map(|_| AtomicBool::new(false)).collect(),
                free: all_slots(blocks),
                link: InTurn::new(link),
                broken: FirstError::default(),
                notices: AtomicU64::new(0),
            }),
            watch: Arc::new(CqWatch::new(port.recv_cq, port.channel)),
            counts: Counts::default(),
        })
    }

    fn poll(&mut self) -> Result<Option<RendezvousBlock>, EndError> {
        if self.shared.is_due() {
            self.shared.announce();
        }
        self.shared.broken.check()?;
        let Some(notice) = self.shared.receives.take()? else { return Ok(None) };
        let notice =
            CompletionNotice::decode(&notice).ok_or(PeerFault::Message(notice.len() as u64))?;
        let slot = self.shared.filled_slot(&notice)?;
        SlotBlock::arrived(&self.shared, slot, &mut self.counts).map(Some)
    }
}

impl Shared {
    /// Returns the slot named by a notice, which must have been announced.
    fn filled_slot(&self, notice: &CompletionNotice) -> Result<u32, PeerFault> {
        let fits = (TRAILER_BYTES..=self.geometry.block_bytes()).contains(&notice.bytes);
        let was_announced =
            |slot: &u32| self.announced[*slot as usize].swap(false, Ordering::AcqRel);
        slot_at(&self.geometry, self.slots.addr(), notice.addr)
            .filter(|slot| fits && was_announced(slot))
            .ok_or(PeerFault::Address(notice.addr))
    }

    fn is_due(&self) -> bool {
        !self.free.is_empty() || self.receives.are_due()
    }

    /// Announces free slots.
    fn announce(&self) {
        let announced = self.link.work(|link| self.announce_with(link), |all| all && self.is_due());
        if let Err(error) = announced {
            self.broken.set(error);
        }
    }

    /// False if the queue is full, so that the rest must wait.
    fn announce_with(&self, link: &mut SendQueue) -> Result<bool, EndError> {
        link.check()?;
        // Before the announcements that make the sender use them.
        if self.receives.are_due() {
            self.receives.post(&mut *link.qp)?;
        }
        while !self.free.is_empty() {
            if !has_room(link)? {
                return Ok(false);
            }
            let Some(slot) = self.free.pop() else { break };
            self.announced[slot as usize].store(true, Ordering::Release);
            let notice = AddressNotice {
                addr: self.slots.addr() + self.geometry.slot_offset(slot) as u64,
                rkey: self.slots.rkey(),
                bytes: self.geometry.block_bytes(),
            };
            send(link, &notice)?;
            self.notices.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// Returns whether an announcement fits now.
fn has_room(link: &mut SendQueue) -> Result<bool, EndError> {
    if !link.has_room(1) {
        link.poll()?;
    }
    Ok(link.has_room(1))
}

fn send(link: &mut SendQueue, notice: &AddressNotice) -> Result<(), EndError> {
    let bytes = notice.encode();
    let mut request = SendWr::new(link.posted + 1, SendOp::Send, Payload::Inline(&bytes));
    request.signaled = link.is_due(1);
    link.post(&[request])
}

impl ReceiveEnd for RendezvousReceiver {
    type Block = RendezvousBlock;

    fn take(&mut self) -> Result<Option<RendezvousBlock>, EndError> {
        self.poll().map_err(|error| self.shared.broken.set(error))
    }

    /// `None` also while a slot must still be announced and the queue is full.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        let owes = !self.shared.free.is_empty();
        (!owes).then(|| Arc::clone(&self.watch))
    }

    /// Counts one interaction for each announced slot.
    fn counts(&self) -> Counts {
        Counts { interactions: self.shared.notices.load(Ordering::Relaxed), ..self.counts }
    }
}

/// A block that was received through a [`RendezvousReceiver`].
pub type RendezvousBlock = SlotBlock<Shared>;

impl Released for Shared {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn slots(&self) -> &Arc<dyn Mr> {
        &self.slots
    }

    fn release(&self, slot: u32) {
        // There is room for all slots.
        let _ = self.free.push(slot);
        self.announce();
    }
}
