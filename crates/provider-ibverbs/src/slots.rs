//! What threads that poll share with the owner of a queue pair.
//!
//! A completion names its queue pair by a number that the device returns unchanged: the slot, the
//! slot's epoch, which of the two queues, and the place in it. A poller finds the slot without a
//! lock. So slots are not freed before the device is closed; the next queue pair of similar size
//! reuses a slot under another epoch, which identifies late completions of the former.
use crate::sys::QueuePair;
use catchment_verbs::provider::{StateCell, WorkQueueCredits, full};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{Endpoint, Service, VerbsError};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const SLOT_BITS: u32 = 22;
const EPOCH_BITS: u32 = 10;
const RECV_BIT: u64 = 1 << (SLOT_BITS + EPOCH_BITS);
const SEQ_SHIFT: u32 = SLOT_BITS + EPOCH_BITS + 1;
const SEQ_BITS: u32 = 64 - SEQ_SHIFT;
const EPOCH_MASK: u32 = (1 << EPOCH_BITS) - 1;

/// What the device carries for a request. The place counts in the upper bits, so that adding
/// [`RequestId::STEP`] names the next request, whatever came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(pub(crate) u64);

impl RequestId {
    /// From one request of a queue to the next.
    pub(crate) const STEP: u64 = 1 << SEQ_SHIFT;

    fn new(slot: u32, epoch: u32, is_recv: bool, seq: u64) -> Self {
        let recv = if is_recv { RECV_BIT } else { 0 };
        let name = u64::from(slot) | u64::from(epoch & EPOCH_MASK) << SLOT_BITS | recv;
        Self(name | seq << SEQ_SHIFT)
    }

    fn slot(self) -> u32 {
        (self.0 & ((1 << SLOT_BITS) - 1)) as u32
    }

    fn epoch(self) -> u32 {
        (self.0 >> SLOT_BITS) as u32 & EPOCH_MASK
    }

    pub(crate) fn is_recv(self) -> bool {
        self.0 & RECV_BIT != 0
    }

    /// Its number, given one nearby.
    fn seq(self, near: u64) -> u64 {
        let low = self.0 >> SEQ_SHIFT;
        // Sign extension of the difference in as many bits as there are.
        let ahead = (low.wrapping_sub(near) << (64 - SEQ_BITS)) as i64 >> (64 - SEQ_BITS);
        near.wrapping_add_signed(ahead)
    }
}

#[derive(Debug, Default)]
struct Kept {
    wr_id: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct WorkQueue {
    kept: Box<[Kept]>,
    posted: AtomicU64,
    credits: WorkQueueCredits,
}

impl WorkQueue {
    fn new(capacity: u32) -> Self {
        Self {
            kept: (0..capacity).map(|_| Kept::default()).collect(),
            posted: AtomicU64::new(0),
            credits: WorkQueueCredits::default(),
        }
    }

    fn at(&self, seq: u64) -> &Kept {
        &self.kept[seq as usize & (self.kept.len() - 1)]
    }

    /// Requests ever posted. Only the owner of the queue pair changes it.
    #[inline]
    pub(crate) fn posted(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    /// Returns how many requests of `posted` still occupy the queue.
    #[inline]
    pub(crate) fn outstanding(&self, posted: u64) -> u64 {
        self.credits.outstanding(posted)
    }

    /// Records a request that is about to be posted. The queue must have room for it.
    #[inline]
    pub(crate) fn keep(&self, seq: u64, wr_id: u64, bytes: u64) {
        let kept = self.at(seq);
        kept.wr_id.store(wr_id, Ordering::Relaxed);
        kept.bytes.store(bytes, Ordering::Release);
    }

    /// Notes that all requests before this number are posted.
    #[inline]
    pub(crate) fn set_posted(&self, posted: u64) {
        self.posted.store(posted, Ordering::Release);
    }

    /// Completes a request and those before it; returns its `wr_id` and its length.
    #[inline]
    pub(crate) fn complete(&self, id: RequestId) -> (u64, u64) {
        let seq = id.seq(self.credits.freed());
        let kept = self.at(seq);
        let bytes = kept.bytes.load(Ordering::Acquire);
        let done = (kept.wr_id.load(Ordering::Relaxed), bytes);
        self.credits.free_before(seq + 1);
        done
    }

    /// Removes the oldest outstanding request, if there is one; returns its `wr_id`.
    pub(crate) fn flush_one(&self) -> Option<u64> {
        let (freed, posted) = (self.credits.freed(), self.posted());
        if freed >= posted {
            return None;
        }
        let wr_id = self.at(freed).wr_id.load(Ordering::Relaxed);
        self.credits.free_before(freed + 1);
        Some(wr_id)
    }

    fn clear(&self) {
        self.credits.free_before(self.posted());
    }
}

/// What changes of a queue pair lock.
#[derive(Default)]
pub(crate) struct Control {
    /// None once the queue pair is gone.
    pub(crate) qp: Option<Arc<QueuePair>>,
    pub(crate) peer: Option<Endpoint>,
    /// Numbers of the completion queues of its sends and its receives.
    pub(crate) cqs: [usize; 2],
}

pub(crate) struct Slot {
    pub(crate) index: u32,
    epoch: AtomicU32,
    qpn: AtomicU32,
    is_datagram: AtomicBool,
    /// Sends that had left the queue when the queue pair took the slot, or was reset.
    first_send: AtomicU64,
    /// When the kernel was last queried for the state, in nanoseconds of the device's clock.
    pub(crate) asked_ns: AtomicU64,
    pub(crate) state: StateCell,
    pub(crate) sends: WorkQueue,
    pub(crate) recvs: WorkQueue,
    pub(crate) control: Mutex<Control>,
}

impl Slot {
    fn new(index: u32, (sends, recvs): (u32, u32)) -> Self {
        Self {
            index,
            epoch: AtomicU32::new(0),
            qpn: AtomicU32::new(0),
            is_datagram: AtomicBool::new(false),
            first_send: AtomicU64::new(0),
            asked_ns: AtomicU64::new(0),
            state: StateCell::default(),
            sends: WorkQueue::new(sends),
            recvs: WorkQueue::new(recvs),
            control: Mutex::default(),
        }
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qpn.load(Ordering::Relaxed)
    }

    /// Returns whether its receives are of datagrams.
    #[inline]
    pub(crate) fn is_datagram(&self) -> bool {
        self.is_datagram.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn queue(&self, is_recv: bool) -> &WorkQueue {
        if is_recv { &self.recvs } else { &self.sends }
    }

    /// Returns what the device carries for request number `seq`.
    #[inline]
    pub(crate) fn request_id(&self, is_recv: bool, seq: u64) -> RequestId {
        RequestId::new(self.index, self.epoch.load(Ordering::Relaxed), is_recv, seq)
    }

    /// Returns how many sends have completed since the queue pair was created or reset.
    pub(crate) fn sends_done(&self) -> u64 {
        let first = self.first_send.load(Ordering::Relaxed);
        self.sends.credits.freed().saturating_sub(first)
    }

    /// Forgets what is outstanding: late completions are recognised by their epoch.
    pub(crate) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.sends.clear();
        self.recvs.clear();
        let first = self.sends.credits.freed();
        self.first_send.store(first, Ordering::Relaxed);
    }
}

const FIRST_CHUNK: u32 = 16;
/// Chunks of doubling size that hold all slots that an identifier can name.
const CHUNKS: usize = (SLOT_BITS - FIRST_CHUNK.ilog2()) as usize;

type Chunk = Box<[OnceLock<Arc<Slot>>]>;

#[derive(Default)]
pub(crate) struct SlotTable {
    chunks: [OnceLock<Chunk>; CHUNKS],
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    made: u32,
    /// Those without a queue pair, by the sizes of their queues.
    by_size: HashMap<(u32, u32), Vec<Arc<Slot>>>,
}

impl SlotTable {
    /// Returns a slot for a queue pair of at most these capacities.
    ///
    /// # Errors
    /// When there are as many queue pairs as identifiers can name.
    pub(crate) fn take(&self, sends: u32, recvs: u32) -> Result<Arc<Slot>, VerbsError> {
        let size = (sends.max(1).next_power_of_two(), recvs.max(1).next_power_of_two());
        let mut free = self.free.lock();
        if let Some(slot) = free.by_size.get_mut(&size).and_then(Vec::pop) {
            return Ok(slot);
        }
        let index = free.made;
        let (chunk, at) = place(index);
        let Some(chunk) = self.chunks.get(chunk) else {
            return Err(full("queue pairs of a context", index as usize));
        };
        let entries = chunk.get_or_init(|| {
            let bytes = FIRST_CHUNK << place(index).0;
            (0..bytes).map(|_| OnceLock::new()).collect()
        });
        free.made += 1;
        Ok(Arc::clone(entries[at].get_or_init(|| Arc::new(Slot::new(index, size)))))
    }

    pub(crate) fn give_back(&self, slot: &Arc<Slot>) {
        slot.clear();
        let size = (slot.sends.kept.len() as u32, slot.recvs.kept.len() as u32);
        let mut free = self.free.lock();
        free.by_size.entry(size).or_default().push(Arc::clone(slot));
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Arc<Slot>> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)?.get()
    }

    /// Returns the slot of a completion; `None` if its request was forgotten.
    #[inline]
    pub(crate) fn of(&self, id: RequestId) -> Option<&Arc<Slot>> {
        let slot = self.get(id.slot())?;
        let epoch = slot.epoch.load(Ordering::Relaxed) & EPOCH_MASK;
        (epoch == id.epoch()).then_some(slot)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        chunks.flat_map(|chunk| chunk.iter().filter_map(OnceLock::get))
    }
}

impl Slot {
    pub(crate) fn occupy(&self, qp: &Arc<QueuePair>, service: Service, cqs: [usize; 2]) {
        let is_datagram = service == Service::Ud;
        self.is_datagram.store(is_datagram, Ordering::Relaxed);
        self.qpn.store(qp.qpn, Ordering::Relaxed);
        *self.control.lock() = Control { qp: Some(Arc::clone(qp)), peer: None, cqs };
        self.state.set(catchment_verbs::QpState::Reset);
    }
}

#[inline]
fn place(index: u32) -> (usize, usize) {
    let shifted = index + FIRST_CHUNK;
    let chunk = shifted.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (shifted - (FIRST_CHUNK << chunk)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_gives_back_what_it_was_made_of() {
        for (slot, epoch, is_recv, seq) in [
            (0, 0, false, 0),
            (77, 1023, true, 1 << 40),
            ((1 << SLOT_BITS) - 1, 5, false, u64::from(u32::MAX)),
            (3, 9, true, (1 << SEQ_BITS) - 1),
            (3, 9, true, 1 << SEQ_BITS),
        ] {
            let id = RequestId::new(slot, epoch, is_recv, seq);
            assert_eq!((id.slot(), id.epoch(), id.is_recv()), (slot, epoch, is_recv));
            for near in [seq, seq.saturating_sub(16_000), seq + 16_000] {
                assert_eq!(id.seq(near), seq);
            }
            let next = RequestId(id.0.wrapping_add(RequestId::STEP));
            assert_eq!(next, RequestId::new(slot, epoch, is_recv, seq + 1));
        }
    }

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == (FIRST_CHUNK as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place((1 << SLOT_BITS) - 1 - FIRST_CHUNK).0 < CHUNKS);
        assert_eq!(place((1 << SLOT_BITS) - FIRST_CHUNK).0, CHUNKS);
    }

    #[test]
    fn a_completion_frees_its_request_and_those_before_it() {
        let table = SlotTable::default();
        let slot = table.take(5, 0).unwrap();
        for seq in 0..5 {
            slot.sends.keep(seq, 100 + seq, seq * 10);
        }
        slot.sends.set_posted(5);
        let id = slot.request_id(false, 2);
        assert_eq!(table.of(id).unwrap().queue(id.is_recv()).complete(id), (102, 20));
        assert_eq!(slot.sends.outstanding(5), 2);
        assert_eq!(slot.sends.flush_one(), Some(103));
        assert_eq!(slot.sends.flush_one(), Some(104));
        assert_eq!(slot.sends.flush_one(), None);
    }

    #[test]
    fn a_slot_is_used_again_and_late_completions_are_known() {
        let table = SlotTable::default();
        let slot = table.take(8, 8).unwrap();
        let id = slot.request_id(true, 0);
        slot.recvs.keep(0, 7, 0);
        slot.recvs.set_posted(1);
        table.give_back(&slot);
        assert!(table.of(id).is_none());
        assert_eq!(slot.recvs.outstanding(1), 0);
        assert_ne!(table.take(9, 8).unwrap().index, slot.index, "its queues are too small");
        assert_eq!(table.take(7, 5).unwrap().index, slot.index);
        assert_eq!(table.all().count(), 2);
    }
}
