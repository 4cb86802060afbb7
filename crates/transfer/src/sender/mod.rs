//! The sending side of a ring.
//!
//! Any number of threads claim blocks, fill them and commit them. Where the provider can map the
//! peer's memory, a claimed block is the peer's slot itself; elsewhere it is a send block, and the
//! thread that gets the queue pair posts for all. Nothing here waits: when no slot is free the caller
//! decides what to do, and may sleep on [`Sender::free_watch`].
mod block;
mod combine;
mod data;
mod driver;
mod error;
mod free;
mod gated;
mod link;
mod quota;
mod retained;

use crate::counters::Counter;
use crate::gate::PostingGate;
use crate::layout::{LINE_BYTES, RingLayout};
use crate::permit::{Decision, Permit, PermitRequest};
use crate::refill::{Pace, Refill};
pub use block::{BlockMeta, CommitError, WriteBlock};
use catchment_verbs::bias::{Bias, BiasedArc, BiasedLock};
use catchment_verbs::{Cq, Mr, Qp, RemoteMapError, Watch};
use data::{Copying, Data};
pub use error::{Broken, CommitFailure, ReserveError, SenderError};
use free::Slots;
pub use link::QueueLimits;
use link::{LEAST_BLOCK_WRS, Link};
use quota::Streams;
pub use retained::RetainedBlock;
use std::sync::{Arc, OnceLock};

/// The ring of a collector, as announced in its session handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRing {
    /// Address of its first byte at the collector.
    pub addr: u64,
    /// Key of its memory.
    pub rkey: u32,
    /// Its shape. Compare [`RingLayout::hash`] with the collector's first.
    pub layout: RingLayout,
}

/// Registered memory that a copying sender needs.
#[derive(Clone)]
pub struct CopyMemory {
    /// Send blocks: one for every slot of the ring, [`RingLayout::block_bytes`] each. A block
    /// stays there until the collector has released it, so that it can be sent again.
    pub blocks: Arc<dyn Mr>,
    /// Room for a copy of the collector's `free[]`: [`RingLayout::status_bytes`], with
    /// [`catchment_verbs::Access::LOCAL_WRITE`].
    pub status: Arc<dyn Mr>,
}

/// How a sender works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderOptions {
    /// Number of streams: they are numbered below this.
    pub max_streams: u32,
    /// Blocks that a stream may have outstanding, until [`Sender::set_quota`] changes it.
    pub quota: u32,
    /// When to read status bytes; `None` for [`Refill::Adaptive`]. Where `free[]` is mapped there are no
    /// READs: its line is prefetched from half of the ring on.
    pub refill: Option<Refill>,
    /// Most status bytes of one READ; a larger array is read in stripes.
    pub stripe_bytes: u32,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self { max_streams: 256, quota: u32::MAX, refill: None, stripe_bytes: 1024 }
    }
}

/// What a sender has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderStats {
    /// Blocks committed.
    pub blocks: u64,
    /// Payload bytes of them.
    pub payload_bytes: u64,
    /// Reads of `free[]`: READs, or scans of the mapped array.
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
    /// Blocks hold what is inside: a handle that another thread clones does not end their bias.
    shared: Arc<BiasedArc<Shared>>,
}

struct Shared {
    layout: RingLayout,
    epoch: u64,
    options: SenderOptions,
    /// Decides when to read `free[]`.
    pace: Pace,
    data: Data,
    /// Whether one thread alone claims slots and notes releases.
    bias: Bias,
    slots: Slots,
    streams: Streams,
    /// The queue pair, while no thread drives it ([`driver`]).
    link: BiasedLock<Link>,
    broken: OnceLock<Broken>,
    free_watch: Option<Arc<dyn Watch>>,
    /// Asked before a claim.
    permit: Option<Arc<dyn Permit>>,
    /// Gets blocks in place of the queue pair.
    gate: Option<Arc<dyn PostingGate>>,
    counters: Counters,
}

impl Sender {
    /// Makes a sender that fills the collector's slots in place ([`catchment_verbs::Caps::direct`]). The
    /// queue pair is connected; the sender keeps it, since the connection lives as long as it.
    ///
    /// # Errors
    /// [`SenderError::Remote`] when the ring cannot be mapped. Nothing was written then.
    pub fn in_place(
        qp: Box<dyn Qp>,
        send_cq: Arc<dyn Cq>,
        remote: RemoteRing,
        epoch: u64,
        options: SenderOptions,
    ) -> Result<Self, SenderError> {
        let data = Data::in_place(&*qp, &remote)?;
        let limits = QueueLimits { max_send_wr: 0, max_inline_bytes: 0, max_message_bytes: 0 };
        Self::new(Link::new(qp, send_cq, limits, LEAST_BLOCK_WRS), data, &remote, epoch, options)
    }

    /// Makes a sender that fills its own send blocks and WRITEs them. The queue pair is connected, and
    /// `send_cq` is its send completion queue, shared with no other queue.
    ///
    /// A block longer than [`QueueLimits::max_message_bytes`] takes several WRITEs, whose order verbs do
    /// not promise. So it gets a checksum whether or not its commit asks for one, and is taken when that
    /// matches.
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
    ) -> Result<Self, SenderError> {
        let most = u32::try_from(limits.max_message_bytes).unwrap_or(u32::MAX);
        check_queue("max_message_bytes", most, LINE_BYTES)?;
        let piece_bytes = most - most % LINE_BYTES;
        let pieces = remote.layout.block_bytes().div_ceil(piece_bytes);
        let block_wrs = pieces + 1;
        check_queue("max_send_wr", limits.max_send_wr, block_wrs)?;
        check_queue("max_inline_bytes", limits.max_inline_bytes, 1)?;
        let data = Data::Copy(Copying::new(memory, remote, piece_bytes)?);
        Self::new(Link::new(qp, send_cq, limits, block_wrs), data, &remote, epoch, options)
    }

    fn new(
        link: Link,
        data: Data,
        remote: &RemoteRing,
        epoch: u64,
        options: SenderOptions,
    ) -> Result<Self, SenderError> {
        let free_watch = match link.qp.watch_remote(remote.rkey) {
            Ok(watch) => Some(watch),
            Err(RemoteMapError::Unsupported) => None,
            Err(error) => return Err(error.into()),
        };
        let layout = remote.layout;
        let shared = Shared {
            layout,
            epoch,
            options,
            pace: Pace::new(options.refill.unwrap_or(Refill::Adaptive), layout.blocks()),
            data,
            bias: Bias::new(),
            slots: Slots::new(&layout),
            streams: Streams::new(options.max_streams, options.quota),
            link: BiasedLock::new(link),
            broken: OnceLock::new(),
            free_watch,
            permit: None,
            gate: None,
            counters: Counters::default(),
        };
        Ok(Self { shared: Arc::new(BiasedArc::new(shared)) })
    }

    /// Returns the same sender, which asks `permit` before every claim.
    ///
    /// # Panics
    /// When the sender was cloned before, or a block of it was claimed.
    #[must_use]
    pub fn with_permit(mut self, permit: Arc<dyn Permit>) -> Self {
        let shared = Arc::get_mut(&mut self.shared).and_then(BiasedArc::get_mut);
        shared.expect("a sender that nothing shares yet").permit = Some(permit);
        self
    }

    /// Wakes threads that wait for a block, because the permit may answer differently now. From any
    /// thread.
    pub fn wake(&self) {
        self.shared.streams.resume();
        if let Some(watch) = &self.shared.free_watch {
            watch.wake();
        }
    }

    /// Returns whether the permit paused this stream, and [`Sender::wake`] was not called since.
    pub fn is_paused(&self, stream: u32) -> bool {
        self.shared.streams.is_paused(stream)
    }

    /// Claims a block with room for `payload_bytes`. Never blocks.
    ///
    /// # Errors
    /// [`ReserveError::WouldBlock`] when no slot is free; otherwise what is wrong.
    #[inline]
    pub fn reserve(&self, stream: u32, payload_bytes: u32) -> Result<WriteBlock, ReserveError> {
        let shared = &self.shared;
        shared.alive()?;
        let limit = shared.layout.max_payload_bytes();
        if payload_bytes > limit {
            return Err(ReserveError::TooLong { asked: payload_bytes, limit });
        }
        if shared.permit.is_some() {
            return self.reserve_if_permitted(stream, payload_bytes);
        }
        self.claim(stream, payload_bytes)
    }

    #[inline]
    fn claim(&self, stream: u32, payload_bytes: u32) -> Result<WriteBlock, ReserveError> {
        let shared = &self.shared;
        let Some(slot) = shared.claim(stream)? else {
            shared.alive()?;
            shared.counters.would_blocks.add(1);
            return Err(ReserveError::WouldBlock);
        };
        Ok(WriteBlock::new(BiasedArc::clone(shared), slot, stream, payload_bytes))
    }

    fn reserve_if_permitted(
        &self,
        stream: u32,
        payload_bytes: u32,
    ) -> Result<WriteBlock, ReserveError> {
        let Some(permit) = &self.shared.permit else { return self.claim(stream, payload_bytes) };
        // Read before asking: a wake that follows the answer must be seen.
        let before = self.shared.streams.wakes();
        let request = PermitRequest { stream, payload_bytes };
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
                Err(ReserveError::Refused(reason))
            }
        }
    }

    /// Scans for released slots, posts what waits, takes completions. Claims and commits do this too; a
    /// provider whose requests take time needs it when completions arrive while no thread commits.
    ///
    /// # Errors
    /// [`Broken`] once the session is over.
    pub fn progress(&self) -> Result<(), Broken> {
        self.shared.combine();
        self.shared.scan_free();
        self.shared.check()
    }

    /// Reads all status bytes once, whether or not blocks are needed: the paper's RmFree.
    ///
    /// # Errors
    /// [`Broken`] once the session is over.
    pub fn refresh(&self) -> Result<(), Broken> {
        self.shared.read_now();
        self.shared.alive()
    }

    /// Returns the watch for released blocks; `None` if the provider has no doorbell.
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

    /// Returns the number of blocks of a stream that are claimed or not yet released.
    ///
    /// # Errors
    /// [`ReserveError::Stream`] when there is no such stream.
    pub fn outstanding(&self, stream: u32) -> Result<u32, ReserveError> {
        self.shared.streams.outstanding(stream)
    }

    /// Checks that the session is alive, as far as this side can know.
    ///
    /// # Errors
    /// [`Broken`] with the reason why it is not.
    pub fn check(&self) -> Result<(), Broken> {
        self.shared.check()
    }

    /// Returns committed blocks whose release was not seen: those of a stream in packet order, one stream
    /// after the other. After the session has ended they can be sent again in another one. The collector
    /// may have finished some of them: it must recognise duplicates by their packet numbers.
    pub fn unreleased(&self) -> Vec<RetainedBlock> {
        self.shared.scan_all();
        retained::collect(&self.shared)
    }

    /// Returns the number of slots known to be free.
    pub fn known_free(&self) -> u32 {
        self.shared.slots.known()
    }

    /// Returns whether blocks are filled in the collector's memory.
    pub fn is_in_place(&self) -> bool {
        self.shared.data.is_in_place()
    }

    /// Returns the shape of the ring.
    pub fn layout(&self) -> &RingLayout {
        &self.shared.layout
    }

    /// Returns what was done so far.
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
    Err(SenderError::Queue { what, given, needed })
}
