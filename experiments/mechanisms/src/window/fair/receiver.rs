//! The receiving end.
use super::arrivals::{Arrivals, Completions, Tails};
use super::returns::{Link, Returns, Target};
use super::{CREDIT_SEND_WR, Form, SwFair, credit_bytes, credit_every, receive_list};
use crate::{
    Counts, EndError, Offer, PeerFault, Port, ReceiveEnd, SendQueue, SetupError, Tag, TakenBlock,
};
use catchment_channel::geometry::{Arrived, Geometry, INSIDE};
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::wait::CqWatch;
use catchment_verbs::{Mr, RecvWr, Watch};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const RECEIVE: RecvWr<'static> = RecvWr { wr_id: 0, sges: &[] };

/// Every so many empty looks the connection is looked at too: a peer that only receives credits
/// shows its death nowhere else.
const CHECK_EVERY: u32 = 256;

/// The receiving end of [`SwFair`]. One thread at a time looks for blocks; they are given back from
/// any.
pub struct SwFairReceiver {
    shared: Arc<Shared>,
    arrivals: Arrivals,
    counts: Counts,
    empty: u32,
    /// To sleep on when blocks are announced by completions.
    completion_watch: Option<Arc<dyn Watch>>,
}

struct Shared {
    geometry: Geometry,
    slots: Arc<dyn Mr>,
    returns: Returns,
}

/// A block that was received through a [`SwFairReceiver`].
pub struct SwFairBlock {
    shared: Arc<Shared>,
    place: u32,
    arrived: Arrived,
}

impl SwFairReceiver {
    pub(super) fn new(sw: &SwFair, mut port: Port, peer: &Offer) -> Result<Self, SetupError> {
        let geometry = sw.geometry()?;
        let slots = port.mr(0, "the slots", geometry.total_bytes())?;
        let (arrivals, completion_watch) = if sw.form.has_imm() {
            let expected = match sw.form {
                Form::Selective => 0,
                Form::WriteImm | Form::Tail | Form::TailInPlace => geometry.windows() as usize,
            };
            let completions = Completions::new(Arc::clone(&port.recv_cq), expected);
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
        let selective = sw.form == Form::Selective;
        Ok(Self {
            shared: Arc::new(Shared {
                returns: Returns::new(geometry, selective, credit_every(geometry.blocks()), link),
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
    fn look(&mut self) -> Result<Option<SwFairBlock>, EndError> {
        let shared = &*self.shared;
        shared.returns.broken.check()?;
        let memory = shared.slots.region().whole();
        let Some(place) = self.arrivals.next(&shared.geometry, &memory, &shared.returns)? else {
            self.found_nothing()?;
            return Ok(None);
        };
        Ok(Some(self.block(place)?))
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

    #[inline]
    fn block(&mut self, place: u32) -> Result<SwFairBlock, EndError> {
        let shared = &self.shared;
        shared.returns.note_busy();
        shared.returns.note_taken(place)?;
        let arrived = shared.geometry.header(&shared.slots.region().whole(), place);
        let arrived = arrived.map_err(|reason| PeerFault::Header { position: place, reason })?;
        self.counts.blocks += 1;
        self.counts.payload_bytes += u64::from(arrived.bytes);
        Ok(SwFairBlock { shared: Arc::clone(shared), place, arrived })
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
    let to = match sw.form {
        Form::TailInPlace => {
            Target::InPlace(port.qp.map_remote(memory.addr, memory.bytes, memory.rkey)?)
        }
        Form::WriteImm | Form::Selective | Form::Tail => Target::Requests(memory),
    };
    let list = match sw.form.has_imm() {
        true => receive_list(geometry.places()) as usize,
        false => 0,
    };
    let words = match sw.form {
        Form::Selective => windows * geometry.blocks().div_ceil(u64::BITS) as usize,
        Form::WriteImm | Form::Tail | Form::TailInPlace => 0,
    };
    Ok(Link {
        queue: SendQueue::new(port.qp, port.send_cq, CREDIT_SEND_WR),
        to,
        told: vec![0; windows].into(),
        told_bits: vec![0; words].into(),
        list: vec![RECEIVE; list].into(),
    })
}

impl ReceiveEnd for SwFairReceiver {
    type Block = SwFairBlock;

    #[inline]
    fn take(&mut self) -> Result<Option<SwFairBlock>, EndError> {
        self.look().map_err(|error| self.shared.returns.broken.set(error))
    }

    /// `None` also while the sender must still be told something and the queue is full.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        if self.shared.returns.owes() {
            return None;
        }
        match &self.completion_watch {
            Some(watch) => Some(Arc::clone(watch)),
            None => self.shared.slots.watch(),
        }
    }

    /// One interaction a credit.
    fn counts(&self) -> Counts {
        Counts { interactions: self.shared.returns.credits(), ..self.counts }
    }
}

impl TakenBlock for SwFairBlock {
    #[inline]
    fn tag(&self) -> Tag {
        self.arrived.tag()
    }

    #[inline]
    fn payload(&self) -> VolatileSlice<'_> {
        let memory = self.shared.slots.region().whole();
        let geometry = &self.shared.geometry;
        geometry.arrived(memory, self.place, &self.arrived)
    }
}

impl Drop for SwFairBlock {
    #[inline]
    fn drop(&mut self) {
        self.shared.returns.give_back(self.place);
    }
}
