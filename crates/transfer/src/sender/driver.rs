//! The work of the thread that holds the link of a copying sender.
//!
//! Threads that commit put their block into a lock-free queue; the thread that then gets the [`Link`]
//! posts for all (flat combining). The others go back to filling: no thread waits for another.
use super::Shared;
use super::data::Copying;
use super::error::Broken;
use super::link::{LEAST_BLOCK_WRS, Link};
use crate::status::full_byte;
use catchment_verbs::{Completion, Payload, RemoteAddr, SendOp, SendWr, Sge, WcOpcode};
use std::sync::atomic::Ordering;

/// Blocks posted with one call.
const BATCH: usize = 16;
/// Marks the READ of the status bytes in a `wr_id`.
const READ: u64 = 1 << 63;
/// Completions polled with one call.
const POLL: usize = 16;

/// A stripe of `free[]`.
struct Stripe {
    offset: usize,
    bytes: usize,
}

/// See the module.
pub(super) struct Driver<'a> {
    pub(super) link: &'a mut Link,
    pub(super) shared: &'a Shared,
    pub(super) data: &'a Copying,
}

impl Driver<'_> {
    /// Does all that can be done now: completions, blocks, the status READ. Returns true if the queue is
    /// full, so that the rest must wait for a completion.
    pub(super) fn progress(&mut self) -> Result<bool, Broken> {
        loop {
            self.poll(false)?;
            // Blocks first: the collector waits for them, and the READ is for later.
            self.post_blocks()?;
            if self.post_read()? {
                self.poll(true)?;
            }
            if !self.data.has_work() {
                return Ok(false);
            }
            let full = self.link.free_wrs() < self.link.block_wrs || !self.link.may_signal();
            if full && !self.poll(false)? {
                return Ok(true);
            }
        }
    }

    /// Posts this block, if nothing waits before it and the queue has room. Returns whether it did.
    #[inline]
    pub(super) fn post_first(&mut self, slot: u32) -> bool {
        let room = self.link.free_wrs() >= self.link.block_wrs && self.link.may_signal();
        if !room || !self.data.ready.is_empty() {
            return false;
        }
        if let Err(broken) = self.post_one(slot) {
            let _ = self.shared.broken.set(broken);
        }
        true
    }

    /// Takes completions; `at_once` if the last READ was posted just before.
    fn poll(&mut self, at_once: bool) -> Result<bool, Broken> {
        if self.link.signaled == 0 {
            return Ok(false);
        }
        let mut out = [Completion::EMPTY; POLL];
        let n = self.link.cq.poll(&mut out).map_err(Broken::Cq)?;
        let mut reads = 0;
        for completion in &out[..n] {
            let success =
                completion.result.map_err(|failure| Broken::Completion(failure.status))?;
            self.link.done = completion.wr_id & !READ;
            self.link.signaled -= 1;
            reads += u32::from(success.opcode == WcOpcode::Read);
        }
        if reads > 0 {
            self.note_reads(reads, at_once);
        }
        if let Some(gate) = self.shared.gate.as_ref().filter(|_| n > 0) {
            self.data.done.store(self.link.done, Ordering::Release);
            gate.completed();
        }
        Ok(n > 0)
    }

    /// Notes what so many READs, the oldest ones, have brought together.
    fn note_reads(&mut self, count: u32, at_once: bool) {
        let found = self.shared.scan_copy(self.data);
        self.link.empty_reads = if found == 0 { self.link.empty_reads + count as usize } else { 0 };
        let (now, pace) = (self.shared.moment(self.data), &self.shared.pace);
        let reads = &mut self.link.reads_in_flight;
        let at_once = at_once && reads.count() == 1;
        (1..count).for_each(|_| reads.overtaken(pace, now));
        let all = self.shared.slots.known() == self.data.layout.blocks();
        reads.completed(pace, now, found, all, at_once);
        self.publish_reads();
    }

    /// Reads the status bytes, if a thread asked for that.
    fn post_read(&mut self) -> Result<bool, Broken> {
        if !self.link.reads_in_flight.has_room()
            || self.link.free_wrs() == 0
            || !self.link.may_signal()
        {
            return Ok(false);
        }
        // The load alone costs nothing when none is wanted.
        let wanted = self.data.read_wanted.load(Ordering::Acquire);
        if !wanted || !self.data.read_wanted.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        let stripe = self.next_stripe();
        let sge = [Sge {
            addr: self.data.status.addr() + stripe.offset as u64,
            bytes: stripe.bytes as u32,
            lkey: self.data.status.lkey(),
        }];
        let from = self.data.remote_addr(self.data.layout.free_offset() + stripe.offset);
        let id = (self.link.posted + 1) | READ;
        self.link.post(&[SendWr::new(id, SendOp::Read(from), Payload::Sges(&sge))])?;
        let now = self.shared.moment(self.data);
        self.link.reads_in_flight.posted(&self.shared.pace, now);
        self.publish_reads();
        self.shared.counters.status_reads.add(1);
        Ok(true)
    }

    fn publish_reads(&self) {
        let count = self.link.reads_in_flight.count() as u32;
        self.data.reads_in_flight.store(count, Ordering::Release);
    }

    /// Returns the stripe where the next releases are expected, then those after it (I3).
    fn next_stripe(&self) -> Stripe {
        let all = self.data.layout.blocks() as usize;
        let most = self.shared.options.stripe_bytes.max(1) as usize;
        let expected = self.shared.slots.cursor() as usize / most;
        let offset = (expected + self.link.empty_reads) % all.div_ceil(most) * most;
        Stripe { offset, bytes: most.min(all - offset) }
    }

    /// Posts committed blocks: the WRITE of each, and where the ring has hints one inline WRITE of the
    /// status bytes of each run of neighbouring slots (I7).
    fn post_blocks(&mut self) -> Result<(), Broken> {
        let most = if self.link.block_wrs > LEAST_BLOCK_WRS.into() {
            // Long blocks have room one at a time.
            1
        } else {
            BATCH as u64
        };
        if self.data.ready.is_empty() {
            return Ok(());
        }
        let room = (self.link.free_wrs() / self.link.block_wrs).min(most) as usize;
        if room == 0 || !self.link.may_signal() {
            return Ok(());
        }
        let mut slots = [0; BATCH];
        let mut n = 0;
        // A pop from an empty queue costs a fence, `is_empty` does not.
        while n < room && !self.data.ready.is_empty() {
            let Some(slot) = self.data.ready.pop() else { break };
            slots[n] = slot;
            n += 1;
        }
        match n {
            0 => Ok(()),
            1 => self.post_one(slots[0]),
            _ => self.post_batch(&slots[..n]),
        }
    }

    fn count_posted(&self, blocks: usize) {
        let posted = self.data.posted.load(Ordering::Relaxed) + blocks as u64;
        self.data.posted.store(posted, Ordering::Relaxed);
    }

    /// Posts one block, the usual case, without the arrays of a batch.
    fn post_one(&mut self, slot: u32) -> Result<(), Broken> {
        let sge = [self.data.block_sge(slot, self.shared.room_bytes(slot))];
        if sge[0].bytes > self.data.piece_bytes {
            return self.post_segmented(slot, sge[0]);
        }
        self.post_last(slot, self.data.remote_block(slot, sge[0].bytes), &sge)
    }

    /// Posts a block that is longer than a message; the queue has room for all its requests. The WRITEs
    /// go in order, the last of which ends with the commit word, then the status byte if there is one.
    #[cold]
    fn post_segmented(&mut self, slot: u32, block: Sge) -> Result<(), Broken> {
        let to = self.data.remote_block(slot, block.bytes);
        let piece = |at: u32, bytes: u32| {
            let addr = to.addr + u64::from(at);
            let sge = Sge { addr: block.addr + u64::from(at), bytes, ..block };
            ([sge], SendOp::Write(RemoteAddr { addr, ..to }))
        };
        let mut at = 0;
        while block.bytes - at > self.data.piece_bytes {
            let (sge, op) = piece(at, self.data.piece_bytes);
            self.link.post(&[SendWr::new(0, op, Payload::Sges(&sge)).unsignaled()])?;
            at += self.data.piece_bytes;
        }
        let last = RemoteAddr { addr: to.addr + u64::from(at), ..to };
        self.post_last(slot, last, &piece(at, block.bytes - at).0)
    }

    /// Posts a part of a block that a gate held; the last request is signaled. See
    /// [`Sender::post_part`](super::Sender::post_part).
    #[cold]
    pub(super) fn post_part(
        &mut self,
        slot: u32,
        at: u32,
        bytes: u32,
    ) -> Result<Option<u64>, Broken> {
        self.shared.alive()?;
        let block = self.data.block_sge(slot, self.shared.room_bytes(slot));
        let to = self.data.remote_block(slot, block.bytes);
        let end = at.saturating_add(bytes).min(block.bytes);
        let wanted = u64::from((end - at.min(end)).div_ceil(self.data.piece_bytes)) + 1;
        let has_room = |link: &Link| link.free_wrs() > wanted && link.may_signal();
        if !(has_room(self.link) || self.poll(false)? && has_room(self.link)) {
            return Ok(None);
        }
        let mut at = at;
        while at < end {
            let bytes = (end - at).min(self.data.piece_bytes);
            let sge = [Sge { addr: block.addr + u64::from(at), bytes, ..block }];
            let op = SendOp::Write(RemoteAddr { addr: to.addr + u64::from(at), ..to });
            at += bytes;
            let write = SendWr::new(0, op, Payload::Sges(&sge)).unsignaled();
            let is_last = at == end;
            if is_last && end == block.bytes && self.data.layout.has_hints() {
                self.link.post(&[write])?;
                self.post_hint(slot)?;
            } else if is_last {
                self.post_signaled(write)?;
            } else {
                self.link.post(&[write])?;
            }
        }
        if end == block.bytes {
            self.count_posted(1);
        }
        Ok(Some(self.link.posted))
    }

    fn post_hint(&mut self, slot: u32) -> Result<(), Broken> {
        let hint = [full_byte(self.shared.slots.generations.next_generation(slot) - 1)];
        let to = self.data.remote_addr(self.data.layout.full_offset() + slot as usize);
        self.post_signaled(SendWr::new(0, SendOp::Write(to), Payload::Inline(&hint)))
    }

    fn post_signaled(&mut self, request: SendWr<'_>) -> Result<(), Broken> {
        let wr_id = self.link.posted + 1;
        self.link.post(&[SendWr { wr_id, signaled: true, ..request }])
    }

    /// Posts the WRITE that ends a block, and its status byte where the ring has hints. A request is made
    /// where it is posted: a copy of one just made waits until all stores before it are done.
    #[inline]
    fn post_last(&mut self, slot: u32, to: RemoteAddr, sge: &[Sge; 1]) -> Result<(), Broken> {
        self.count_posted(1);
        let hints = self.data.layout.has_hints();
        let count = 1 + u64::from(hints);
        let signaled = self.link.is_signal_due(count);
        let wr_id = self.link.posted + count;
        let request = |op, payload, signaled| SendWr {
            wr_id,
            op,
            payload,
            signaled,
            fence: false,
            solicited: false,
        };
        let (write, bytes) = (SendOp::Write(to), Payload::Sges(sge));
        if !hints {
            return self.link.post(&[request(write, bytes, signaled)]);
        }
        let hint = [full_byte(self.shared.slots.generations.next_generation(slot) - 1)];
        let full = self.data.remote_addr(self.data.layout.full_offset() + slot as usize);
        let full = request(SendOp::Write(full), Payload::Inline(&hint), signaled);
        self.link.post(&[request(write, bytes, false), full])
    }

    fn post_batch(&mut self, slots: &[u32]) -> Result<(), Broken> {
        let mut sges = [Sge { addr: 0, bytes: 0, lkey: 0 }; BATCH];
        let mut hints = [0; BATCH];
        for ((sge, hint), &slot) in sges.iter_mut().zip(&mut hints).zip(slots) {
            *sge = self.data.block_sge(slot, self.shared.room_bytes(slot));
            *hint = full_byte(self.shared.slots.generations.next_generation(slot) - 1);
        }
        let empty = SendWr::new(0, SendOp::Send, Payload::Inline(&[])).unsignaled();
        let mut requests = [empty; 2 * BATCH];
        let mut count = 0;
        let mut run_start = 0;
        for (i, &slot) in slots.iter().enumerate() {
            requests[count] = SendWr {
                op: SendOp::Write(self.data.remote_block(slot, sges[i].bytes)),
                payload: Payload::Sges(std::slice::from_ref(&sges[i])),
                ..empty
            };
            count += 1;
            if !self.data.layout.has_hints() {
                continue;
            }
            let longest = i + 1 - run_start == self.link.limits.max_inline_bytes as usize;
            if longest || slots.get(i + 1) != Some(&(slot + 1)) {
                let first = slots[run_start] as usize;
                let to = self.data.remote_addr(self.data.layout.full_offset() + first);
                requests[count] = SendWr {
                    op: SendOp::Write(to),
                    payload: Payload::Inline(&hints[run_start..=i]),
                    ..empty
                };
                count += 1;
                run_start = i + 1;
            }
        }
        self.link.signal_now_and_then(&mut requests[..count]);
        self.count_posted(slots.len());
        self.link.post(&requests[..count])
    }
}
