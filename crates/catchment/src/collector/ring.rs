//! A session's memory and queue pair at the collector.
use super::CollectorError;
use crate::observe::QueueSizes;
use catchment_transfer::RingLayout;
use catchment_verbs::sync::Mutex;
use catchment_verbs::{
    Access, Context, Endpoint, ModifyError, Mr, Qp, QpInit, QpState, QpTransition, RtrAttr, RtsAttr,
};
use std::sync::{Arc, Weak};

/// The registered ring and the queue pair through which one source reaches it.
///
/// The collector posts nothing on the queue pair: its queues have the smallest capacity there is.
pub(super) struct Ring {
    pub(super) mr: Arc<dyn Mr>,
    pub(super) layout: RingLayout,
    /// The device does not promise the order of the bytes of a WRITE.
    pub(super) needs_checksum: bool,
    qp: Box<dyn Qp>,
    /// What the queues of the queue pair hold.
    pub(super) queues: QueueSizes,
}

/// Requests and receives of a queue pair on which nothing is posted: verbs make no smaller ones.
const SEND_WRS: u32 = 1;
const RECEIVES: u32 = 0;
const COMPLETIONS: u32 = 1;

impl Ring {
    /// Allocates and registers the memory. Touches all of it: takes a while for a large ring.
    pub(super) fn allocate(
        context: &Arc<dyn Context>,
        layout: RingLayout,
    ) -> Result<Self, CollectorError> {
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.alloc_mr(layout.total_bytes(), access)?;
        let cq = context.create_cq(COMPLETIONS, None)?;
        let queues = QueueSizes { send: SEND_WRS, receive: RECEIVES, completions: cq.capacity() };
        let strict = context.caps().strict_capacity;
        let mut qp = pd.create_qp(QpInit { strict, ..QpInit::rc(&cq, SEND_WRS, RECEIVES) })?;
        qp.modify(QpTransition::ToInit { access: Access::REMOTE_WRITE | Access::REMOTE_READ })?;
        Ok(Self { mr, layout, needs_checksum: !context.caps().data_in_order, qp, queues })
    }

    /// What the source needs to write into the memory.
    pub(super) fn describe(&self) -> crate::session::message::Ring {
        crate::session::message::Ring {
            addr: self.mr.addr(),
            rkey: self.mr.rkey(),
            blocks: self.layout.blocks(),
            block_bytes: self.layout.block_bytes(),
            layout_hash: self.layout.hash(),
            checksum: self.needs_checksum,
        }
    }

    /// What the source needs to reach the queue pair.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Makes the queue pair ready for the source's.
    pub(super) fn connect(&mut self, source: Endpoint) -> Result<(), ModifyError> {
        self.qp.modify(QpTransition::ToRtr(RtrAttr::new(source)))?;
        self.qp.modify(QpTransition::ToRts(RtsAttr::default()))
    }

    /// Whether the source's proof of the path came: it writes into the payload of the first slot.
    pub(super) fn was_reached(&self) -> bool {
        let mut first = [0];
        let read = self.mr.region().whole().read_at(self.layout.slot_offset(0), &mut first);
        read.is_ok() && first != [0]
    }

    /// Whether the provider has lost the source.
    pub(super) fn is_broken(&self) -> bool {
        self.qp.state() == QpState::Err
    }

    /// Whether a page of the memory could not be had.
    pub(super) fn has_lost_a_page(&self) -> bool {
        self.mr.region().is_broken()
    }
}

/// Memory for the rings of all sources together. A ring counts until its last frame is dropped,
/// which can be long after its session.
pub(super) struct RingBudget {
    most_bytes: u64,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    /// Bytes that are being allocated.
    reserved: u64,
    rings: Vec<Weak<dyn Mr>>,
}

/// Room for a ring, until it is allocated or the value is dropped.
pub(super) struct Reserved<'a> {
    budget: &'a RingBudget,
    bytes: u64,
}

/// No room for another ring.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a ring of {asked} bytes does not fit: the rings of all sources take {used} of {most} bytes"
)]
pub(super) struct OutOfMemory {
    asked: u64,
    used: u64,
    most: u64,
}

impl RingBudget {
    pub(super) fn new(most_bytes: u64) -> Self {
        Self { most_bytes, used: Mutex::default() }
    }

    /// Room for a ring of `bytes`, if there is any.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reserved<'_>, OutOfMemory> {
        let mut state = self.used.lock();
        let used = state.bytes();
        if bytes > self.most_bytes.saturating_sub(used) {
            return Err(OutOfMemory { asked: bytes, used, most: self.most_bytes });
        }
        state.reserved += bytes;
        Ok(Reserved { budget: self, bytes })
    }
}

impl Used {
    fn bytes(&mut self) -> u64 {
        self.rings.retain(|ring| ring.strong_count() > 0);
        let live = self.rings.iter().filter_map(Weak::upgrade);
        self.reserved + live.map(|mr| mr.bytes() as u64).sum::<u64>()
    }
}

impl Reserved<'_> {
    /// The room is taken by this memory from now on.
    pub(super) fn use_for(self, memory: &Arc<dyn Mr>) {
        self.budget.used.lock().rings.push(Arc::downgrade(memory));
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.budget.used.lock().reserved -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_provider_shm::ShmProvider;
    use catchment_verbs::Provider;

    #[test]
    fn all_rings_together_have_a_limit_and_a_dropped_one_makes_room() {
        let context = ShmProvider::new().open("shm0").unwrap();
        let layout = RingLayout::new(4, 4096).unwrap();
        let bytes = layout.total_bytes() as u64;
        let budget = RingBudget::new(2 * bytes);
        let first = Ring::allocate(&context, layout).unwrap();
        budget.reserve(bytes).unwrap().use_for(&first.mr);
        let second = budget.reserve(bytes).unwrap();
        let error = budget.reserve(1).err().unwrap();
        assert_eq!((error.used, error.most), (2 * bytes, 2 * bytes));
        drop(second);
        budget.reserve(bytes).unwrap();
        // A frame that the application keeps is such a handle.
        let held = first.mr.clone();
        drop(first);
        assert!(budget.reserve(bytes + 1).is_err());
        drop(held);
        assert!(budget.reserve(2 * bytes).is_ok());
    }
}
