//! The queue pair, and the thread that happens to drive it.
//!
//! A queue pair belongs to one thread at a time. Threads that commit put their block into a
//! lock-free queue; whoever then gets hold of the [`Link`] posts for all (flat combining). The
//! others go back to filling: nobody waits.
use super::Shared;
use super::data::Copying;
use super::error::Broken;
use crate::refill::ReadsInFlight;
use crate::status::full_byte;
use catchment_verbs::{
    Completion, Cq, Payload, Qp, QpState, RemoteAddr, SendOp, SendWr, Sge, WcOpcode,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Blocks posted with one call.
const BATCH: usize = 16;
/// Requests of a block that goes in one WRITE: that, and the one of its status byte.
pub(super) const LEAST_BLOCK_WRS: u32 = 2;
/// Marks the READ of the status bytes in a `wr_id`.
const READ: u64 = 1 << 63;
/// Completions polled with one call.
const POLL: usize = 16;

/// What the send queue can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Send requests outstanding at once, as given to the queue pair; at least one more than the
    /// longest block has WRITEs, so at least 2.
    pub max_send_wr: u32,
    /// Inline bytes of a request, as given to the queue pair; at least 1.
    pub max_inline_bytes: u32,
    /// Longest message of the device ([`catchment_verbs::Caps::max_message_bytes`]); at least 64. A
    /// longer block goes in several WRITEs, and with a checksum.
    pub max_message_bytes: u64,
}

/// The queue pair with its send completions, owned by the combining thread.
pub(super) struct Link {
    pub(super) qp: Box<dyn Qp>,
    cq: Arc<dyn Cq>,
    limits: QueueLimits,
    /// Requests that the longest block takes.
    block_wrs: u64,
    /// Requests posted and requests known to be done, counted from the beginning.
    posted: u64,
    done: u64,
    /// Requests posted since the last one that will make a completion.
    unsignaled: u64,
    /// Completions that are still to come.
    signaled: u32,
    /// READs on their way.
    reads_in_flight: ReadsInFlight,
    /// READs in a row that brought no release.
    empty_reads: usize,
}

/// A stripe's part of `free[]`.
struct Stripe {
    offset: usize,
    bytes: usize,
}

impl Link {
    pub(super) fn new(
        qp: Box<dyn Qp>,
        cq: Arc<dyn Cq>,
        limits: QueueLimits,
        block_wrs: u32,
    ) -> Link {
        Link {
            qp,
            cq,
            limits,
            block_wrs: block_wrs.into(),
            posted: 0,
            done: 0,
            unsignaled: 0,
            signaled: 0,
            reads_in_flight: ReadsInFlight::default(),
            empty_reads: 0,
        }
    }

    /// Notices the end of the session where no request would.
    pub(super) fn check(&mut self) -> Result<(), Broken> {
        if self.qp.state() == QpState::Err {
            return Err(Broken::PeerGone);
        }
        Ok(())
    }

    /// Does all that can be done now: completions, the status READ, blocks. True if the queue is
    /// full, so that the rest must wait for a completion.
    pub(super) fn progress(&mut self, shared: &Shared, data: &Copying) -> Result<bool, Broken> {
        loop {
            self.poll(shared, data, false)?;
            // Blocks first: somebody waits for them, and the READ is for later.
            self.post_blocks(shared, data)?;
            if self.post_read(shared, data)? {
                self.poll(shared, data, true)?;
            }
            if !data.has_work() {
                return Ok(false);
            }
            let full = self.free_wrs() < self.block_wrs || !self.may_signal();
            if full && !self.poll(shared, data, false)? {
                return Ok(true);
            }
        }
    }

    /// Posts this block, if nothing waits before it and the queue has room; says whether it did.
    #[inline]
    pub(super) fn post_first(&mut self, shared: &Shared, data: &Copying, slot: u32) -> bool {
        let room = self.free_wrs() >= self.block_wrs && self.may_signal();
        if !room || !data.ready.is_empty() {
            return false;
        }
        if let Err(broken) = self.post_one(shared, data, slot) {
            let _ = shared.broken.set(broken);
        }
        true
    }

    fn free_wrs(&self) -> u64 {
        u64::from(self.limits.max_send_wr) - (self.posted - self.done)
    }

    fn may_signal(&self) -> bool {
        self.signaled < self.cq.capacity()
    }

    /// Takes completions; `at_once` if the last READ was posted just before.
    fn poll(&mut self, shared: &Shared, data: &Copying, at_once: bool) -> Result<bool, Broken> {
        if self.signaled == 0 {
            return Ok(false);
        }
        let mut out = [Completion::EMPTY; POLL];
        let n = self.cq.poll(&mut out).map_err(Broken::Cq)?;
        for completion in &out[..n] {
            let success = completion.result;
            let success = success.map_err(|failure| Broken::Completion(failure.status))?;
            self.done = completion.wr_id & !READ;
            self.signaled -= 1;
            if success.opcode == WcOpcode::Read {
                let found = shared.slots.scan(&data.free(), &shared.streams);
                self.empty_reads = if found == 0 { self.empty_reads + 1 } else { 0 };
                let at_once = at_once && self.reads_in_flight.count() == 1;
                self.reads_in_flight.completed(&shared.pace, shared.moment(data), found, at_once);
                self.publish_flights(data);
            }
        }
        Ok(n > 0)
    }

    /// Reads the status bytes, if somebody wants to know them.
    fn post_read(&mut self, shared: &Shared, data: &Copying) -> Result<bool, Broken> {
        if !self.reads_in_flight.has_room() || self.free_wrs() == 0 || !self.may_signal() {
            return Ok(false);
        }
        // The load alone costs nothing when nobody wants it.
        let wanted = data.read_wanted.load(Ordering::Acquire);
        if !wanted || !data.read_wanted.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        let stripe = self.next_stripe(shared, data);
        let sge = [Sge {
            addr: data.status.addr() + stripe.offset as u64,
            bytes: stripe.bytes as u32,
            lkey: data.status.lkey(),
        }];
        let from = data.remote_addr(data.layout.free_offset() + stripe.offset);
        let id = (self.posted + 1) | READ;
        let read = SendWr::new(id, SendOp::Read(from), Payload::Sges(&sge));
        self.post(&[read])?;
        self.reads_in_flight.posted(shared.moment(data));
        self.publish_flights(data);
        shared.counters.status_reads.add(1);
        Ok(true)
    }

    fn publish_flights(&self, data: &Copying) {
        let count = self.reads_in_flight.count() as u32;
        data.reads_in_flight.store(count, Ordering::Release);
    }

    /// The stripe where the next releases are expected, then those after it (I3).
    fn next_stripe(&self, shared: &Shared, data: &Copying) -> Stripe {
        let all = data.layout.blocks() as usize;
        let most = shared.options.stripe_bytes.max(1) as usize;
        let expected = shared.slots.cursor() as usize / most;
        let offset = (expected + self.empty_reads) % all.div_ceil(most) * most;
        Stripe { offset, bytes: most.min(all - offset) }
    }

    /// Posts committed blocks: the WRITE of each, and one inline WRITE of the status bytes of each
    /// run of neighbouring slots (I7).
    fn post_blocks(&mut self, shared: &Shared, data: &Copying) -> Result<(), Broken> {
        let most = if self.block_wrs > LEAST_BLOCK_WRS.into() {
            // The long ones have room one by one.
            1
        } else {
            BATCH as u64
        };
        let room = (self.free_wrs() / self.block_wrs).min(most) as usize;
        if room == 0 || !self.may_signal() {
            return Ok(());
        }
        let mut slots = [0; BATCH];
        let mut n = 0;
        // A pop from an empty queue costs a fence, a look at it does not.
        while n < room && !data.ready.is_empty() {
            let Some(slot) = data.ready.pop() else { break };
            slots[n] = slot;
            n += 1;
        }
        match n {
            0 => Ok(()),
            1 => self.post_one(shared, data, slots[0]),
            _ => self.post_batch(shared, data, &slots[..n]),
        }
    }

    fn count_posted(&self, data: &Copying, blocks: usize) {
        let posted = data.posted.load(Ordering::Relaxed) + blocks as u64;
        data.posted.store(posted, Ordering::Relaxed);
    }

    /// The usual case, without the arrays of a batch.
    fn post_one(&mut self, shared: &Shared, data: &Copying, slot: u32) -> Result<(), Broken> {
        let sge = [data.block_sge(slot, shared.room_bytes(slot))];
        if sge[0].bytes > data.piece_bytes {
            return self.post_cut(shared, data, slot, sge[0]);
        }
        let block = SendOp::Write(data.remote_block(slot, sge[0].bytes));
        let write = SendWr::new(0, block, Payload::Sges(&sge));
        self.post_last(shared, data, slot, write)
    }

    /// A block that is longer than a message, of whose requests the queue has room for all: WRITEs
    /// in order, the last of which ends with the commit word, then the status byte.
    #[cold]
    fn post_cut(
        &mut self,
        shared: &Shared,
        data: &Copying,
        slot: u32,
        block: Sge,
    ) -> Result<(), Broken> {
        let to = data.remote_block(slot, block.bytes);
        let piece = |at: u32, bytes: u32| {
            let addr = to.addr + u64::from(at);
            let sge = Sge { addr: block.addr + u64::from(at), bytes, ..block };
            ([sge], SendOp::Write(RemoteAddr { addr, ..to }))
        };
        let mut at = 0;
        while block.bytes - at > data.piece_bytes {
            let (sge, op) = piece(at, data.piece_bytes);
            self.post(&[SendWr::new(0, op, Payload::Sges(&sge)).unsignaled()])?;
            at += data.piece_bytes;
        }
        let (sge, op) = piece(at, block.bytes - at);
        self.post_last(shared, data, slot, SendWr::new(0, op, Payload::Sges(&sge)))
    }

    /// The WRITE that ends a block, and its status byte.
    #[inline]
    fn post_last(
        &mut self,
        shared: &Shared,
        data: &Copying,
        slot: u32,
        write: SendWr<'_>,
    ) -> Result<(), Broken> {
        let hint = [full_byte(shared.slots.generations.next_generation(slot) - 1)];
        let full = SendOp::Write(data.remote_addr(data.layout.full_offset() + slot as usize));
        let mut requests =
            [write.unsignaled(), SendWr::new(0, full, Payload::Inline(&hint)).unsignaled()];
        self.signal_now_and_then(&mut requests);
        self.count_posted(data, 1);
        self.post(&requests)
    }

    fn post_batch(&mut self, shared: &Shared, data: &Copying, slots: &[u32]) -> Result<(), Broken> {
        let mut sges = [Sge { addr: 0, bytes: 0, lkey: 0 }; BATCH];
        let mut hints = [0; BATCH];
        for ((sge, hint), &slot) in sges.iter_mut().zip(&mut hints).zip(slots) {
            *sge = data.block_sge(slot, shared.room_bytes(slot));
            *hint = full_byte(shared.slots.generations.next_generation(slot) - 1);
        }
        let empty = SendWr::new(0, SendOp::Send, Payload::Inline(&[])).unsignaled();
        let mut requests = [empty; 2 * BATCH];
        let mut count = 0;
        let mut run_start = 0;
        for (i, &slot) in slots.iter().enumerate() {
            let block = SendOp::Write(data.remote_block(slot, sges[i].bytes));
            requests[count] = SendWr {
                op: block,
                payload: Payload::Sges(std::slice::from_ref(&sges[i])),
                ..empty
            };
            count += 1;
            let longest = i + 1 - run_start == self.limits.max_inline_bytes as usize;
            if longest || slots.get(i + 1) != Some(&(slot + 1)) {
                let first = slots[run_start] as usize;
                let to = data.remote_addr(data.layout.full_offset() + first);
                requests[count] = SendWr {
                    op: SendOp::Write(to),
                    payload: Payload::Inline(&hints[run_start..=i]),
                    ..empty
                };
                count += 1;
                run_start = i + 1;
            }
        }
        self.signal_now_and_then(&mut requests[..count]);
        self.count_posted(data, slots.len());
        self.post(&requests[..count])
    }

    /// A completion now and then is enough to know that the queue has room again.
    fn signal_now_and_then(&self, requests: &mut [SendWr<'_>]) {
        let count = requests.len() as u64;
        let unsignaled = self.unsignaled + count;
        let most = u64::from(self.limits.max_send_wr);
        // Where nothing else is known to come, the next block has room.
        let due = unsignaled * 2 >= most || most - unsignaled < self.block_wrs;
        if let Some(last) = requests.last_mut().filter(|_| due) {
            last.signaled = true;
            last.wr_id = self.posted + count;
        }
    }

    fn post(&mut self, requests: &[SendWr<'_>]) -> Result<(), Broken> {
        self.qp.post_send(requests).map_err(Broken::Post)?;
        self.posted += requests.len() as u64;
        if requests.last().is_some_and(|last| last.signaled) {
            self.signaled += 1;
            self.unsignaled = 0;
        } else {
            self.unsignaled += requests.len() as u64;
        }
        Ok(())
    }
}
