//! The receiving end.
use super::arrivals::{Arrivals, Completions, Tails};
use super::returns::{Link, Returns, Target};
use super::{CREDIT_SEND_WR, Form, SwFair, credit_bytes, credit_every};
use crate::slots::{Released, SlotBlock};
use crate::{Counts, EndError, Offer, Port, ReceiveEnd, SendQueue, SetupError};
use catchment_channel::geometry::{Geometry, INSIDE};
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Mr, RecvWr, Watch};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const RECEIVE: RecvWr<'static> = RecvWr { wr_id: 0, sges: &[] };

/// Empty polls between two checks of the connection: a peer that only receives credits shows its
/// death nowhere else.
const CHECK_EVERY: u32 = 256;

/// The receiving end of [`SwFair`]. One thread at a time takes blocks; any thread releases them.
pub struct SwFairReceiver {
    shared: Arc<Shared>,
    arrivals: Arrivals,
    counts: Counts,
    empty: u32,
    /// The watch to sleep on where blocks are announced by completions.
    completion_watch: Option<Arc<dyn Watch>>,
}

/// What a receiver and its blocks share.
pub struct Shared {
    geometry: Geometry,
    slots: Arc<dyn Mr>,
    returns: Returns,
}

/// A block that was received through a [`SwFairReceiver`].
pub type SwFairBlock = SlotBlock<Shared>;

impl SwFairReceiver {
    pub(super) fn new(sw: &SwFair, mut port: Port, peer: &Offer) -> Result<Self, SetupError> {
        let geometry = sw.geometry()?;
        let slots = port.mr(0, "the slots", geometry.total_bytes())?;
        let (arrivals, completion_watch) = if sw.form.has_imm() {
            let expected = if sw.form.is_selective() { 0 } else { geometry.windows() };
            let completions = Completions::new(Arc::clone(&port.recv_cq), expected as usize);
            for _ in 0..port.queues.max_recv_wr {
                port.qp.post_recv(&[RECEIVE])?;
            }
            let watch = CqWatch::new(Arc::clone(&port.recv_cq), Arc::clone(&port.channel));
            (Arrivals::Completions(Box::new(completions)), Some(Arc::new(watch) as Arc<dyn Watch>))
        } else {
            clear_tails(&geometry, &slots);
            (Arrivals::Tails(Tails::new(geometry.windows())), None)
        };
        let link = link(sw, &geometry, port, peer)?;
        Ok(Self {
            shared: Arc::new(Shared {
                returns: Returns::new(geometry, credit_every(geometry.blocks()), link),
                geometry,
                slots,
            }),
            arrivals,
            counts: Counts::default(),
            empty: 0,
            completion_watch,
        })
    }

    #[inline]
    fn poll(&mut self) -> Result<Option<SwFairBlock>, EndError> {
        let shared = &*self.shared;
        shared.returns.broken.check()?;
        let memory = shared.slots.region().whole();
        let Some(place) = self.arrivals.next(&shared.geometry, &memory, &shared.returns)? else {
            self.found_nothing()?;
            return Ok(None);
        };
        shared.returns.note_busy();
        shared.returns.note_taken(place)?;
        SlotBlock::arrived(&self.shared, place, &mut self.counts).map(Some)
    }

    #[cold]
    fn found_nothing(&mut self) -> Result<(), EndError> {
        let returns = &self.shared.returns;
        returns.note_idle();
        self.empty += 1;
        if self.empty.is_multiple_of(CHECK_EVERY) {
            returns.check()?;
        }
        returns.broken.check()
    }
}

fn clear_tails(geometry: &Geometry, slots: &Arc<dyn Mr>) {
    let memory = slots.region().whole();
    for place in 0..geometry.places() {
        memory.atomic_u64(geometry.tail_offset(place)).expect(INSIDE).store(0, Ordering::Relaxed);
    }
}

fn link(sw: &SwFair, geometry: &Geometry, port: Port, peer: &Offer) -> Result<Link, SetupError> {
    let windows = geometry.windows() as usize;
    let memory =
        peer.memory(0, "the credits", credit_bytes(sw.form, geometry.blocks()) * windows)?;
    let to = if sw.form == Form::TailInPlace {
        Target::InPlace(port.qp.map_remote(memory.addr, memory.bytes, memory.rkey)?)
    } else {
        Target::Requests(memory)
    };
    let words = if sw.form.is_selective() { geometry.blocks().div_ceil(u64::BITS) } else { 0 };
    Ok(Link {
        queue: SendQueue::new(port.qp, port.send_cq, CREDIT_SEND_WR),
        to,
        announced: vec![0; windows].into(),
        announced_bits: vec![0; windows * words as usize].into(),
        list: vec![RECEIVE; sw.receive_list(geometry) as usize].into(),
    })
}

impl ReceiveEnd for SwFairReceiver {
    type Block = SwFairBlock;

    #[inline]
    fn take(&mut self) -> Result<Option<SwFairBlock>, EndError> {
        self.poll().map_err(|error| self.shared.returns.broken.set(error))
    }

    /// `None` also while a credit is owed and the queue is full.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        if self.shared.returns.owes() {
            return None;
        }
        match &self.completion_watch {
            Some(watch) => Some(Arc::clone(watch)),
            None => self.shared.slots.watch(),
        }
    }

    /// Counts one interaction for each credit.
    fn counts(&self) -> Counts {
        Counts { interactions: self.shared.returns.credits(), ..self.counts }
    }
}

impl Released for Shared {
    #[inline]
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn slots(&self) -> &Arc<dyn Mr> {
        &self.slots
    }

    #[inline]
    fn release(&self, place: u32) {
        self.returns.give_back(place);
    }
}
