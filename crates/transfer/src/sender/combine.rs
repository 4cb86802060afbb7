//! What threads that share a sender do with it: free slots, streams, and the queue pair.
//!
//! Claims enter through [`Shared::claim`], filled blocks through [`Shared::commit`]; they leave as
//! WRITEs, or as stores into the mapped ring. No thread waits for another: one that finds the queue
//! pair taken leaves its block to the thread that has it.
use super::Shared;
use super::data::{Copying, Data};
use super::driver::Driver;
use super::error::{Broken, ReserveError};
use super::link::Link;
use crate::gate::HeldBlock;
use crate::header::BlockHeader;
use crate::refill::Moment;
use std::sync::atomic::Ordering;

/// What is sent between two READs to use slots again: a walk through so much does not leave the nearest caches. A READ for each
/// block of 64 KiB took a fifth of the throughput over RoCE.
const REUSE_BYTES: u32 = 1 << 20;

impl Shared {
    #[inline]
    pub(super) fn alive(&self) -> Result<(), Broken> {
        if let Data::InPlace(place) = &self.data
            && !place.bell.is_valid()
        {
            let _ = self.broken.set(Broken::PeerGone);
        }
        match self.broken.get() {
            None => Ok(()),
            Some(broken) => Err(*broken),
        }
    }

    pub(super) fn check(&self) -> Result<(), Broken> {
        self.alive()?;
        if let Some(mut link) = self.link.try_lock() {
            let result = link.check();
            drop(link);
            if let Err(broken) = result {
                let _ = self.broken.set(broken);
            }
            self.combine();
        }
        self.alive()
    }

    /// Claims a slot for a block of this stream; `None` when none is known to be free.
    #[inline]
    pub(super) fn claim(&self, stream: u32) -> Result<Option<u32>, ReserveError> {
        if self.slots.uses_few() && self.reuses_slots() {
            self.refill();
        }
        if let Data::Copy(copying) = &self.data
            && copying.reads_in_flight.load(Ordering::Relaxed) > 0
        {
            // Noticing the completion of a READ soon tells how long it took.
            self.combine();
        }
        let claimed = match self.claim_known(stream) {
            Ok(Some(slot)) => Ok(Some(slot)),
            // A slot, or one of the stream's blocks, may have been released meanwhile.
            Ok(None) => self.claim_released(stream),
            Err(error) => self.claim_after(stream, error),
        };
        if let Ok(Some(_)) = claimed {
            self.fetch_ahead();
        }
        claimed
    }

    /// Returns whether to learn of releases before they are needed. A slot that is still in the cache is worth reading a line of
    /// `free[]` for a block of a thousand lines. Between hosts a READ takes packets, and time of both sides: one for
    /// [`REUSE_BYTES`].
    fn reuses_slots(&self) -> bool {
        match &self.data {
            Data::Copy(copying) if self.free_watch.is_none() => {
                let in_flight = copying.reads_in_flight.load(Ordering::Acquire);
                let apart = REUSE_BYTES / self.layout.block_bytes();
                self.pace.reads_to_reuse(in_flight, apart, self.moment(copying))
            }
            Data::Copy(_) | Data::InPlace(_) => true,
        }
    }

    /// Claims a slot that is known to be free.
    #[inline]
    fn claim_known(&self, stream: u32) -> Result<Option<u32>, ReserveError> {
        let section = self.bias.enter();
        let threads = section.threads();
        self.streams.enter(threads, stream)?;
        let slot = self.slots.take(threads);
        if slot.is_none() {
            self.streams.leave(threads, stream, 1);
        }
        Ok(slot)
    }

    fn claim_released(&self, stream: u32) -> Result<Option<u32>, ReserveError> {
        self.refill();
        self.claim_known(stream)
    }

    #[cold]
    fn claim_after(&self, stream: u32, error: ReserveError) -> Result<Option<u32>, ReserveError> {
        if !matches!(error, ReserveError::Quota { .. }) {
            return Err(error);
        }
        self.counters.quota_refusals.add(1);
        self.claim_released(stream)
    }

    /// Fetches more free slots before the known ones are used up (I1).
    #[inline]
    pub(super) fn fetch_ahead(&self) {
        if !self.pace.may_read_ahead() {
            return;
        }
        match &self.data {
            Data::InPlace(place) => self.slots.prefetch_at_half(&place.free()),
            Data::Copy(copying) => {
                let known = self.slots.known();
                let in_flight = copying.reads_in_flight.load(Ordering::Acquire);
                if self.pace.reads_ahead(known, in_flight, self.moment(copying)) {
                    // The commit that follows posts it, behind its block.
                    copying.want_read();
                }
            }
        }
    }

    /// Reads `free[]` because slots are missing, or are to be used again: at once where it is mapped, by a READ elsewhere, unless
    /// one is in flight.
    pub(super) fn refill(&self) {
        match &self.data {
            Data::InPlace(_) => {
                self.scan_free();
            }
            Data::Copy(copying) => {
                let in_flight = copying.reads_in_flight.load(Ordering::Acquire);
                if self.pace.reads_when_empty(in_flight) {
                    copying.want_read();
                }
                self.combine();
            }
        }
    }

    /// Reads `free[]`, whether or not a READ is in flight.
    pub(super) fn read_now(&self) {
        if let Data::Copy(copying) = &self.data {
            copying.want_read();
        }
        self.refill();
    }

    pub(super) fn moment(&self, copying: &Copying) -> Moment {
        Moment {
            commits: copying.posted.load(Ordering::Relaxed),
            refused: self.counters.would_blocks.get() + self.counters.quota_refusals.get(),
        }
    }

    /// Notes all releases in the copy of `free[]` that a READ has brought.
    pub(super) fn scan_copy(&self, copying: &Copying) -> u32 {
        let section = self.bias.enter();
        self.slots.scan_all(section.threads(), &copying.free(), &self.streams)
    }

    /// Notes all releases in the mapped `free[]`, if it is mapped.
    pub(super) fn scan_all(&self) {
        if let Data::InPlace(place) = &self.data {
            let section = self.bias.enter();
            self.slots.scan_all(section.threads(), &place.free(), &self.streams);
        }
    }

    /// Scans the mapped `free[]` and returns the number of releases found; 0 where it is not mapped.
    pub(super) fn scan_free(&self) -> u32 {
        let Data::InPlace(place) = &self.data else { return 0 };
        self.counters.status_reads.add(1);
        let section = self.bias.enter();
        self.slots.scan(section.threads(), &place.free(), &self.streams)
    }

    #[inline]
    pub(super) fn room_bytes(&self, slot: u32) -> u32 {
        let info = &self.slots.info[slot as usize];
        info.room_bytes.load(Ordering::Relaxed)
    }

    /// Sends a filled block whose header was checked. The caller owns the slot until here.
    #[inline]
    pub(super) fn commit(&self, slot: u32, header: &BlockHeader) {
        let info = &self.slots.info[slot as usize];
        let bytes = info.payload_bytes.load(Ordering::Relaxed) + u64::from(header.payload_bytes);
        info.payload_bytes.store(bytes, Ordering::Relaxed);
        let words = header.to_words();
        let generation = self.slots.generations.next_generation(slot);
        match &self.data {
            Data::InPlace(place) => {
                self.slots.generations.launch(slot, generation);
                place.publish(self.epoch, slot, generation, &words);
            }
            Data::Copy(copying) => {
                copying.seal(self.epoch, slot, generation, &words);
                self.slots.generations.launch(slot, generation);
                match &self.gate {
                    None => self.send(copying, slot),
                    Some(gate) => gate.hold(HeldBlock {
                        slot,
                        stream: header.stream,
                        bytes: copying.block_sge(slot, header.room_bytes).bytes,
                        packet_number: header.packet_number,
                        frame_bytes: header.frame_bytes,
                        is_last: header.frame_offset + u64::from(header.payload_bytes)
                            == header.frame_bytes,
                        capture_time_ns: header.capture_time_ns,
                    }),
                }
            }
        }
    }

    /// Posts a sealed block, or leaves it to the thread that drives the queue pair.
    #[inline]
    pub(super) fn send(&self, copying: &Copying, slot: u32) {
        let Some(mut link) = self.link.try_lock() else {
            copying.leave(slot);
            return self.combine();
        };
        // The usual case, with no other thread: the block need not go through the queue.
        let mut driver = Driver { link: &mut link, shared: self, data: copying };
        if self.broken.get().is_some() || !driver.post_first(slot) {
            copying.leave(slot);
        }
        let rests = link.signaled == 0 && !copying.has_work();
        let waits = !rests && self.drive(&mut link, copying);
        drop(link);
        if !waits && copying.has_work() {
            self.combine();
        }
    }

    /// Drives the queue pair, unless another thread does: that one will see our work before it stops,
    /// because it checks once more after it has put the link back.
    ///
    /// A thread that comes in vain comes before the other puts the link back ([`BiasedLock`]), and what it
    /// left before is seen after that: no fence is needed between them.
    ///
    /// [`BiasedLock`]: catchment_verbs::bias::BiasedLock
    pub(super) fn combine(&self) {
        let Data::Copy(copying) = &self.data else { return };
        while let Some(mut link) = self.link.try_lock() {
            let waits = self.drive(&mut link, copying);
            drop(link);
            if waits || !copying.has_work() {
                return;
            }
        }
    }

    /// Frees the slot of a block that is not sent.
    pub(super) fn put_back(&self, stream: u32, slot: u32) {
        let section = self.bias.enter();
        self.streams.leave(section.threads(), stream, 1);
        self.slots.put_back(section.threads(), slot);
    }

    /// Does all that can be done now. Returns true if the rest must wait for a completion.
    pub(super) fn drive(&self, link: &mut Link, copying: &Copying) -> bool {
        if self.broken.get().is_some() {
            return true;
        }
        Driver { link, shared: self, data: copying }.progress().unwrap_or_else(|broken| {
            let _ = self.broken.set(broken);
            true
        })
    }
}
