//! The receiving end.
use super::receives::Receives;
use super::{AddressNotice, CompletionNotice, Rendezvous, receive_list, receives};
use crate::{
    Counts, EndError, FirstError, InTurn, PeerFault, Port, ReceiveEnd, SendQueue, SetupError, Tag,
    TakenBlock,
};
use catchment_channel::geometry::{Arrived, Geometry};
use catchment_transfer::layout::TRAILER_BYTES;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Mr, Payload, QpState, SendOp, SendWr, Watch};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The receiving end of [`Rendezvous`]. One thread at a time looks for blocks; they are given back
/// from any.
pub struct RendezvousReceiver {
    shared: Arc<Shared>,
    watch: Arc<dyn Watch>,
    counts: Counts,
}

struct Shared {
    geometry: Geometry,
    slots: Arc<dyn Mr>,
    receives: Receives,
    /// Whether a slot was announced and no block has come there.
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
        let buffers = port.mr(0, "notices", 0)?;
        let (count, list) = (receives(blocks), receive_list(blocks));
        let receives = Receives::new(Arc::clone(&port.recv_cq), buffers, count, list);
        receives.post(&mut *port.qp)?;
        let free = ArrayQueue::new(blocks as usize);
        // There is room for all slots.
        for slot in 0..blocks {
            let _ = free.push(slot);
        }
        let slots = port.mr(1, "the slots", geometry.total_bytes())?;
        let link = SendQueue::new(port.qp, port.send_cq, port.queues.max_send_wr);
        Ok(Self {
            shared: Arc::new(Shared {
                geometry,
                slots,
                receives,
                announced: (0..blocks).map(|_| AtomicBool::new(false)).collect(),
                free,
                link: InTurn::new(link),
                broken: FirstError::default(),
                notices: AtomicU64::new(0),
            }),
            watch: Arc::new(CqWatch::new(port.recv_cq, port.channel)),
            counts: Counts::default(),
        })
    }

    fn look(&mut self) -> Result<Option<RendezvousBlock>, EndError> {
        if self.shared.is_due() {
            self.shared.announce();
        }
        self.shared.broken.check()?;
        let Some(notice) = self.shared.receives.take()? else { return Ok(None) };
        let notice =
            CompletionNotice::decode(&notice).ok_or(PeerFault::Message(notice.len() as u64))?;
        Ok(Some(self.block(&notice)?))
    }

    fn block(&mut self, notice: &CompletionNotice) -> Result<RendezvousBlock, EndError> {
        let slot = self.shared.filled_slot(notice)?;
        let arrived = self.shared.geometry.header(&self.shared.slots.region().whole(), slot);
        let arrived = arrived.map_err(|reason| PeerFault::Header { position: slot, reason })?;
        self.counts.blocks += 1;
        self.counts.payload_bytes += u64::from(arrived.bytes);
        Ok(RendezvousBlock { shared: Arc::clone(&self.shared), slot, arrived })
    }
}

impl Shared {
    /// The slot that a notice means. It must have been announced.
    fn filled_slot(&self, notice: &CompletionNotice) -> Result<u32, PeerFault> {
        let error = PeerFault::Address(notice.addr);
        let slot_bytes = u64::from(self.geometry.block_bytes());
        let offset = notice.addr.checked_sub(self.slots.addr()).ok_or(error)?;
        let slot = offset / slot_bytes;
        let is_slot = offset.is_multiple_of(slot_bytes) && slot < self.announced.len() as u64;
        let fits = (u64::from(TRAILER_BYTES)..=slot_bytes).contains(&notice.bytes.into());
        if is_slot && fits && self.announced[slot as usize].swap(false, Ordering::AcqRel) {
            return Ok(slot as u32);
        }
        Err(error)
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
        if link.qp.state() == QpState::Err {
            return Err(EndError::PeerGone);
        }
        // Before the announcements that bring messages for them.
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
        self.look().map_err(|error| self.shared.broken.set(error))
    }

    /// `None` also while a slot must still be announced and the queue is full.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        let owes = !self.shared.free.is_empty();
        (!owes).then(|| Arc::clone(&self.watch))
    }

    /// One interaction a slot that was announced.
    fn counts(&self) -> Counts {
        Counts { interactions: self.shared.notices.load(Ordering::Relaxed), ..self.counts }
    }
}

pub struct RendezvousBlock {
    shared: Arc<Shared>,
    slot: u32,
    arrived: Arrived,
}

impl TakenBlock for RendezvousBlock {
    fn tag(&self) -> Tag {
        self.arrived.tag()
    }

    fn payload(&self) -> VolatileSlice<'_> {
        let memory = self.shared.slots.region().whole();
        let geometry = &self.shared.geometry;
        geometry.arrived(memory, self.slot, &self.arrived)
    }
}

impl Drop for RendezvousBlock {
    fn drop(&mut self) {
        // There is room for all slots.
        let _ = self.shared.free.push(self.slot);
        self.shared.announce();
    }
}
