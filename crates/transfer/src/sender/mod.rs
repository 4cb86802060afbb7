//! The sending side of a ring.
//!
//! Any number of threads claim blocks, fill them and commit them. Where the provider can map the
//! peer's memory, a claimed block is the peer's slot itself; elsewhere it is a send block, and
//! whichever thread gets the queue pair posts for all. Nothing here waits: when no slot is free
//! the caller decides what to do, and may sleep on [`Sender::free_watch`].
mod block;
mod data;
mod error;
mod free;
mod link;
mod quota;
mod retained;

use crate::counters::Counter;
use crate::header::BlockHeader;
use crate::layout::{LINE_BYTES, RingLayout};
use crate::permit::{Decision, Permit, PermitRequest};
use crate::refill::{Moment, Pace, Refill};
pub use block::{BlockMeta, CommitError, WriteBlock};
use catchment_verbs::{Cq, Mr, Qp, RemoteMapError, Watch};
use crossbeam_utils::atomic::AtomicCell;
use data::{Copying, Data};
pub use error::{Broken, CommitFailure, ReserveError, SenderError};
use free::Slots;
pub use link::QueueLimits;
use link::{LEAST_BLOCK_WRS, Link};
use quota::Streams;
pub use retained::RetainedBlock;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// The ring of a collector, as its session handshake names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRing {
    /// Address of its first byte at the collector.
    pub addr: u64,
    /// Key of its memory.
    pub rkey: u32,
    /// Its shape. Compare [`RingLayout::hash`] with the collector's before.
    pub layout: RingLayout,
}

/// Registered memory that a copying sender needs.
#[derive(Clone)]
pub struct CopyMemory {
    /// Send blocks: one for every slot of the ring, [`RingLayout::block_bytes`] each. A block
    /// stays there until the collector released it, so that it can be sent again.
    pub blocks: Arc<dyn Mr>,
    /// Room for a copy of the collector's `free[]`: [`RingLayout::status_bytes`], with
    /// [`catchment_verbs::Access::LOCAL_WRITE`].
    pub status: Arc<dyn Mr>,
}

/// How a sender works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderOptions {
    /// Streams are numbered from 0 to this, exclusively.
    pub max_streams: u32,
    /// Blocks that a stream may have outstanding, until [`Sender::set_quota`] says otherwise.
    pub quota: u32,
    /// When to look for released slots; `None` for [`Refill::Adaptive`]. Where `free[]` is mapped
    /// there are no READs: its line is then fetched ahead from half of the ring on.
    pub refill: Option<Refill>,
    /// Most status bytes of one READ; a larger array is read in stripes.
    pub stripe_bytes: u32,
}

impl Default for SenderOptions {
    fn default() -> SenderOptions {
        SenderOptions {
            max_streams: 256,
            quota: u32::MAX,
            refill: None,
            stripe_bytes: 1024,
        }
    }
}

/// What a sender has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderStats {
    /// Blocks committed.
    pub blocks: u64,
    /// Payload bytes of them.
    pub payload_bytes: u64,
    /// Looks at `free[]`: READs, or scans of the mapped array.
    pub status_reads: u64,
    /// Claims refused because no slot was known to be free.
    pub would_blocks: u64,
    /// Claims refused by a quota.
    pub quota_refusals: u64,
}

#[derive(Debug, Default)]
struct Counters {
    status_reads: Counter,
    would_blocks: Counter,
    quota_refusals: Counter,
}

/// The sending side of one ring in one session. Clones are handles to the same sender.
#[derive(Clone)]
pub struct Sender {
    shared: Arc<Shared>,
}

struct Shared {
    layout: RingLayout,
    epoch: u64,
    options: SenderOptions,
    /// When to read `free[]`.
    pace: Pace,
    data: Data,
    slots: Slots,
    streams: Streams,
    /// The queue pair, while no thread drives it.
    link: AtomicCell<Option<Box<Link>>>,
    broken: OnceLock<Broken>,
    free_watch: Option<Arc<dyn Watch>>,
    /// Asked before a claim.
    permit: Option<Arc<dyn Permit>>,
    counters: Counters,
}

impl Sender {
    /// A sender that fills the collector's slots in place
    /// ([`catchment_verbs::Caps::direct`]). The queue pair is connected; the sender keeps it,
    /// since the connection lives as long as it.
    ///
    /// # Errors
    /// [`SenderError::Remote`] when the ring cannot be mapped. Nothing was written then.
    pub fn in_place(
        qp: Box<dyn Qp>,
        send_cq: Arc<dyn Cq>,
        remote: RemoteRing,
        epoch: u64,
        options: SenderOptions,
    ) -> Result<Sender, SenderError> {
        let data = Data::in_place(&*qp, &remote)?;
        let limits = QueueLimits {
            max_send_wr: 0,
            max_inline_bytes: 0,
            max_message_bytes: 0,
        };
        Sender::new(
            Link::new(qp, send_cq, limits, LEAST_BLOCK_WRS),
            data,
            &remote,
            epoch,
            options,
        )
    }

    /// A sender that fills send blocks of its own and WRITEs them. The queue pair is connected,
    /// and `send_cq` is its send completion queue and nobody else's.
    ///
    /// A block longer than [`QueueLimits::max_message_bytes`] goes in several WRITEs. Of these verbs
    /// promise no order, so it gets a checksum whether or not its commit asks for one, and is taken
    /// when that is right.
    ///
    /// # Errors
    /// [`SenderError::Queue`] or [`SenderError::Memory`] when something is too small.
    pub fn copying(
        qp: Box<dyn Qp>,
        send_cq: Arc<dyn Cq>,
        limits: QueueLimits,
        memory: CopyMemory,
        remote: RemoteRing,
        epoch: u64,
        options: SenderOptions,
    ) -> Result<Sender, SenderError> {
        let most = u32::try_from(limits.max_message_bytes).unwrap_or(u32::MAX);
        check_queue("max_message_bytes", most, LINE_BYTES)?;
        let piece_bytes = most - most % LINE_BYTES;
        let pieces = remote.layout.block_bytes().div_ceil(piece_bytes);
        let block_wrs = pieces + 1;
        check_queue("max_send_wr", limits.max_send_wr, block_wrs)?;
        check_queue("max_inline_bytes", limits.max_inline_bytes, 1)?;
        let data = Data::copying(memory, remote, piece_bytes)?;
        Sender::new(
            Link::new(qp, send_cq, limits, block_wrs),
            data,
            &remote,
            epoch,
            options,
        )
    }

    fn new(
        link: Link,
        data: Data,
        remote: &RemoteRing,
        epoch: u64,
        options: SenderOptions,
    ) -> Result<Sender, SenderError> {
        let free_watch = match link.qp.watch_remote(remote.rkey) {
            Ok(watch) => Some(watch),
            Err(RemoteMapError::Unsupported) => None,
            Err(error) => return Err(error.into()),
        };
        let layout = remote.layout;
        let refill = options.refill.unwrap_or(Refill::Adaptive);
        let shared = Shared {
            layout,
            epoch,
            options,
            pace: Pace::new(refill, layout.blocks()),
            data,
            slots: Slots::new(&layout),
            streams: Streams::new(options.max_streams, options.quota),
            link: AtomicCell::new(Some(Box::new(link))),
            broken: OnceLock::new(),
            free_watch,
            permit: None,
            counters: Counters::default(),
        };
        Ok(Sender {
            shared: Arc::new(shared),
        })
    }

    /// The same sender, which asks `permit` before every claim.
    ///
    /// # Panics
    /// When the sender was cloned before, or a block of it was claimed.
    #[must_use]
    pub fn with_permit(mut self, permit: Arc<dyn Permit>) -> Sender {
        let shared = Arc::get_mut(&mut self.shared);
        shared.expect("a sender that nothing shares yet").permit = Some(permit);
        self
    }

    /// Tells those who wait for a block to claim again, because the permit may answer differently
    /// now. From any thread.
    pub fn wake(&self) {
        self.shared.streams.resume();
        if let Some(watch) = &self.shared.free_watch {
            watch.wake();
        }
    }

    /// Returns whether the permit held this stream back, and [`Sender::wake`] was not called since.
    pub fn is_paused(&self, stream: u32) -> bool {
        self.shared.streams.is_paused(stream)
    }

    /// Claims a block with room for `payload_bytes`. Never blocks.
    ///
    /// # Errors
    /// [`ReserveError::WouldBlock`] when no slot is free; the other variants say what is wrong.
    #[inline]
    pub fn reserve(&self, stream: u32, payload_bytes: u32) -> Result<WriteBlock, ReserveError> {
        let shared = &self.shared;
        shared.alive()?;
        let limit = shared.layout.max_payload_bytes();
        if payload_bytes > limit {
            return Err(ReserveError::TooLong {
                asked: payload_bytes,
                limit,
            });
        }
        if shared.permit.is_some() {
            return self.reserve_if_permitted(stream, payload_bytes);
        }
        self.claim(stream, payload_bytes)
    }

    #[inline]
    fn claim(&self, stream: u32, payload_bytes: u32) -> Result<WriteBlock, ReserveError> {
        let shared = &self.shared;
        shared.enter(stream)?;
        let Some(slot) = shared.take_slot() else {
            shared.streams.leave(stream, 1);
            shared.alive()?;
            shared.counters.would_blocks.add(1);
            return Err(ReserveError::WouldBlock);
        };
        let block = WriteBlock::new(Arc::clone(shared), slot, stream, payload_bytes);
        Ok(block)
    }

    fn reserve_if_permitted(
        &self,
        stream: u32,
        payload_bytes: u32,
    ) -> Result<WriteBlock, ReserveError> {
        let Some(permit) = &self.shared.permit else {
            return self.claim(stream, payload_bytes);
        };
        // Before the question: a wake that follows the answer must be seen.
        let before = self.shared.streams.wakes();
        let request = PermitRequest {
            stream,
            payload_bytes,
        };
        match permit.decide(request) {
            Decision::Go => {
                let claimed = self.claim(stream, payload_bytes);
                if claimed.is_err() {
                    permit.unused(request);
                }
                claimed
            }
            Decision::Wait => {
                self.shared.streams.pause(stream, before)?;
                Err(ReserveError::Paused)
            }
            Decision::Refuse(reason) => {
                self.shared.streams.pause(stream, before)?;
                Err(ReserveError::Refused { reason })
            }
        }
    }

    /// Looks for released slots, posts what waits, takes completions. Claims and commits do this
    /// by themselves; a provider whose requests take time needs it when completions arrive while
    /// nobody commits.
    ///
    /// # Errors
    /// [`Broken`] once the session is over.
    pub fn progress(&self) -> Result<(), Broken> {
        self.shared.combine();
        self.shared.look_at_free();
        self.shared.check()
    }

    /// The paper's RmFree: looks at all status bytes once, whether or not blocks are needed.
    ///
    /// # Errors
    /// [`Broken`] once the session is over.
    pub fn refresh(&self) -> Result<(), Broken> {
        self.shared.read_now();
        self.shared.alive()
    }

    /// To sleep until the collector has released a block; `None` if the provider has no doorbell.
    ///
    /// Arm it, call [`Sender::reserve`] once more, then wait.
    pub fn free_watch(&self) -> Option<Arc<dyn Watch>> {
        self.shared.free_watch.clone()
    }

    /// Sets how many blocks a stream may have outstanding.
    ///
    /// # Errors
    /// [`ReserveError::Stream`] when there is no such stream.
    pub fn set_quota(&self, stream: u32, blocks: u32) -> Result<(), ReserveError> {
        self.shared.streams.set_quota(stream, blocks)
    }

    /// Blocks of a stream that are claimed or not yet released.
    ///
    /// # Errors
    /// [`ReserveError::Stream`] when there is no such stream.
    pub fn outstanding(&self, stream: u32) -> Result<u32, ReserveError> {
        self.shared.streams.outstanding(stream)
    }

    /// Whether the session still lives, as far as this side can know.
    ///
    /// # Errors
    /// [`Broken`] with the reason why it does not.
    pub fn check(&self) -> Result<(), Broken> {
        self.shared.check()
    }

    /// Committed blocks that were not seen released: those of a stream in the order of their packets,
    /// one stream after the other. After the session has ended they can be sent again in another
    /// one. The collector may have finished some of them: it must recognise duplicates by their
    /// packet numbers.
    pub fn unreleased(&self) -> Vec<RetainedBlock> {
        // A look at a large ring ends once it has found enough for a while.
        while self.shared.look_at_free() > 0 {}
        retained::collect(&self.shared)
    }

    /// Known free slots now.
    pub fn known_free(&self) -> u32 {
        self.shared.slots.known()
    }

    /// Whether blocks are filled in the collector's memory.
    pub fn is_in_place(&self) -> bool {
        self.shared.data.is_in_place()
    }

    /// Shape of the ring.
    pub fn layout(&self) -> &RingLayout {
        &self.shared.layout
    }

    /// What was done so far.
    pub fn stats(&self) -> SenderStats {
        let counters = &self.shared.counters;
        SenderStats {
            blocks: self.shared.slots.generations.total(),
            payload_bytes: self.shared.slots.payload_bytes(),
            status_reads: counters.status_reads.get(),
            would_blocks: counters.would_blocks.get(),
            quota_refusals: counters.quota_refusals.get(),
        }
    }
}

fn check_queue(what: &'static str, given: u32, needed: u32) -> Result<(), SenderError> {
    if given >= needed {
        return Ok(());
    }
    Err(SenderError::Queue {
        what,
        given,
        needed,
    })
}

impl Shared {
    #[inline]
    fn alive(&self) -> Result<(), Broken> {
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

    fn check(&self) -> Result<(), Broken> {
        self.alive()?;
        if let Some(mut link) = self.link.take() {
            let result = link.check();
            self.put_back(link);
            if let Err(broken) = result {
                let _ = self.broken.set(broken);
            }
            self.combine();
        }
        self.alive()
    }

    #[inline]
    fn enter(&self, stream: u32) -> Result<(), ReserveError> {
        let result = self.streams.enter(stream);
        if let Err(ReserveError::Quota { .. }) = result {
            self.counters.quota_refusals.add(1);
            // The stream's blocks may have been released meanwhile.
            self.refill();
            return self.streams.enter(stream);
        }
        result
    }

    #[inline]
    fn take_slot(&self) -> Option<u32> {
        if self.slots.uses_few() {
            // One line to look at, for a block of a thousand: worth it to use a slot again that is
            // still in the cache.
            self.refill();
        }
        if let Data::Copy(copying) = &self.data
            && copying.reads_in_flight.load(Ordering::Relaxed) > 0
        {
            // To know soon that a READ came back is to know how long it took.
            self.combine();
        }
        let slot = self.slots.take().or_else(|| {
            self.refill();
            self.slots.take()
        });
        if slot.is_some() {
            self.look_ahead();
        }
        slot
    }

    /// Looks for more free slots before the known ones are used up (I1).
    #[inline]
    fn look_ahead(&self) {
        if !self.pace.may_read_ahead() {
            return;
        }
        match &self.data {
            Data::InPlace(place) => self.slots.prefetch_at_half(&place.free()),
            Data::Copy(copying) => {
                let known = self.slots.known();
                let in_flight = copying.reads_in_flight.load(Ordering::Acquire);
                if self
                    .pace
                    .reads_ahead(known, in_flight, self.moment(copying))
                {
                    // The commit that follows posts it, behind its block.
                    copying.want_read();
                }
            }
        }
    }

    /// Looks at `free[]` because slots are missing: at once where it is mapped, by a READ elsewhere,
    /// unless one is on its way.
    fn refill(&self) {
        match &self.data {
            Data::InPlace(_) => {
                self.look_at_free();
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

    /// Looks at `free[]`, whether or not a READ is on its way.
    fn read_now(&self) {
        if let Data::Copy(copying) = &self.data {
            copying.want_read();
        }
        self.refill();
    }

    fn moment(&self, copying: &Copying) -> Moment {
        Moment {
            commits: copying.posted.load(Ordering::Relaxed),
            refused: self.counters.would_blocks.get() + self.counters.quota_refusals.get(),
        }
    }

    /// Says how many releases were found; 0 where `free[]` is not mapped.
    fn look_at_free(&self) -> u32 {
        let Data::InPlace(place) = &self.data else {
            return 0;
        };
        self.counters.status_reads.add(1);
        self.slots.scan(&place.free(), &self.streams)
    }

    #[inline]
    fn room_bytes(&self, slot: u32) -> u32 {
        let info = &self.slots.info[slot as usize];
        info.room_bytes.load(Ordering::Relaxed)
    }

    /// Sends a filled block whose header was checked. The caller owns the slot until here.
    #[inline]
    fn commit(self: &Arc<Shared>, slot: u32, header: &BlockHeader) {
        let info = &self.slots.info[slot as usize];
        info.stream.store(header.stream, Ordering::Relaxed);
        info.room_bytes.store(header.room_bytes, Ordering::Relaxed);
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
                self.send(copying, slot);
            }
        }
    }

    /// Posts a sealed block, or leaves it to the thread that drives the queue pair.
    #[inline]
    fn send(&self, copying: &Copying, slot: u32) {
        let Some(mut link) = self.link.take() else {
            copying.leave(slot);
            return self.combine();
        };
        // Alone here, as is usual: the block need not go through the queue.
        if self.broken.get().is_some() || !link.post_first(self, copying, slot) {
            copying.leave(slot);
        }
        let waits = self.drive(&mut link, copying);
        self.put_back(link);
        if !waits && copying.has_work() {
            self.combine();
        }
    }

    /// Drives the queue pair, unless another thread does: that one will see our work before it
    /// stops, because it looks once more after it has put the link back.
    ///
    /// To take the link and to put it back are both exchanges of the same atomic value, with
    /// acquire and release. Who comes in vain therefore comes before the exchange that puts it
    /// back, and that one has seen all that was left before: no fence is needed between them.
    fn combine(&self) {
        let Data::Copy(copying) = &self.data else {
            return;
        };
        while let Some(mut link) = self.link.take() {
            let waits = self.drive(&mut link, copying);
            self.put_back(link);
            if waits || !copying.has_work() {
                return;
            }
        }
    }

    /// An exchange, not a store: see [`Shared::combine`].
    fn put_back(&self, link: Box<Link>) {
        let before = self.link.swap(Some(link));
        debug_assert!(before.is_none(), "two threads drive one queue pair");
    }

    /// True if the rest must wait.
    fn drive(&self, link: &mut Link, copying: &Copying) -> bool {
        if self.broken.get().is_some() {
            return true;
        }
        link.progress(self, copying).unwrap_or_else(|broken| {
            let _ = self.broken.set(broken);
            true
        })
    }
}
