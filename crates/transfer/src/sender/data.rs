//! Where blocks are filled: in the peer's ring, or in our own send blocks.
use super::error::SenderError;
use super::{CopyMemory, RemoteRing};
use crate::commit::{HEADER_WORDS, commit_word};
use crate::header::decode_trailer;
use crate::layout::{LINE_BYTES, RingLayout, TRAILER_BYTES};
use crate::memory::RingMemory;
use crate::refill::MAX_READS;
use crate::{inline, slot};
use catchment_verbs::mem::{MemError, RegionSlice, VolatileSlice};
use catchment_verbs::{Mr, Qp, RemoteAddr, RemoteBell, Sge};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const INSIDE: &str = "a block inside of the checked memory";

/// Where the blocks of a sender are while they are filled.
pub(super) enum Data {
    InPlace(InPlace),
    Copy(Box<Copying>),
}

/// The peer's ring, mapped here.
pub(super) struct InPlace {
    pub(super) ring: RingMemory,
    pub(super) bell: Arc<dyn RemoteBell>,
}

/// One send block for every slot of the ring, and a copy of the peer's `free[]`.
pub(super) struct Copying {
    pub(super) layout: RingLayout,
    /// The send blocks.
    memory: RegionSlice,
    /// Address and key of their memory: asking for them is a call for each block.
    addr: u64,
    lkey: u32,
    /// Keeps them registered.
    _blocks: Arc<dyn Mr>,
    pub(super) status: Arc<dyn Mr>,
    pub(super) remote: RemoteRing,
    /// Most bytes of a WRITE, a multiple of a line: the last piece of a longer block has the whole
    /// trailer.
    pub(super) piece_bytes: u32,
    /// Committed blocks that are not posted yet.
    pub(super) ready: ArrayQueue<u32>,
    /// Blocks posted so far. Stored only by the thread that drives the link.
    pub(super) posted: AtomicU64,
    /// Requests known to be done. Stored only by the thread that drives the link.
    pub(super) done: AtomicU64,
    pub(super) read_wanted: AtomicBool,
    pub(super) reads_in_flight: AtomicU32,
}

impl Data {
    pub(super) fn in_place(qp: &dyn Qp, remote: &RemoteRing) -> Result<Self, SenderError> {
        let window = qp.map_remote(remote.addr, remote.layout.total_bytes() as u64, remote.rkey)?;
        let ring = RingMemory::new(window.memory, remote.layout);
        let ring = ring.map_err(|source| SenderError::Memory {
            what: "the window to the collector's ring",
            source,
        })?;
        Ok(Self::InPlace(InPlace { ring, bell: window.bell }))
    }

    /// Returns whether a block that begins `room_bytes` before its trailer takes several WRITEs.
    pub(super) fn segments(&self, room_bytes: u32) -> bool {
        match self {
            Self::InPlace(_) => false,
            Self::Copy(copying) => room_bytes + TRAILER_BYTES > copying.piece_bytes,
        }
    }

    pub(super) fn is_in_place(&self) -> bool {
        matches!(self, Self::InPlace(_))
    }

    /// Returns the payload of a block that begins `room_bytes` before its trailer.
    #[inline]
    pub(super) fn payload(&self, slot: u32, room_bytes: u32, bytes: u32) -> VolatileSlice<'_> {
        match self {
            Self::InPlace(place) => place.ring.payload(slot, room_bytes, bytes),
            Self::Copy(copying) => {
                let offset = copying.trailer_offset(slot) - room_bytes as usize;
                copying.memory.memory().subslice(offset, bytes as usize).expect(INSIDE)
            }
        }
    }

    /// Returns a block as a piece of a region that stays mapped.
    pub(super) fn retained(&self, slot: u32) -> RegionSlice {
        let (region, offset, bytes) = match self {
            Self::InPlace(place) => {
                let layout = &place.ring.layout;
                return place.ring.piece(layout.slot_offset(slot), layout.block_bytes() as usize);
            }
            Self::Copy(copying) => {
                let bytes = copying.layout.block_bytes() as usize;
                (copying.memory.region(), slot as usize * bytes, bytes)
            }
        };
        RegionSlice::new(Arc::clone(region), offset, bytes).expect(INSIDE)
    }

    pub(super) fn trailer(&self, slot: u32) -> ([u64; HEADER_WORDS], u64) {
        let mut trailer = [0; 64];
        let block = self.retained(slot);
        block.memory().read_at(block.bytes() - LINE_BYTES as usize, &mut trailer).expect(INSIDE);
        decode_trailer(&trailer)
    }
}

impl InPlace {
    /// Returns the peer's `free[]`.
    #[inline]
    pub(super) fn free(&self) -> VolatileSlice<'_> {
        let layout = &self.ring.layout;
        self.ring.whole().subslice(layout.free_offset(), layout.status_bytes()).expect(INSIDE)
    }

    /// Makes the block valid, with its hint if the ring has hints, and wakes the collector if it sleeps.
    #[inline]
    pub(super) fn publish(
        &self,
        epoch: u64,
        slot: u32,
        generation: u64,
        header: &[u64; HEADER_WORDS],
    ) {
        if self.ring.layout.has_hints() {
            slot::publish(&self.ring, epoch, slot, generation, header);
        } else {
            slot::seal(&self.ring, epoch, slot, generation, header);
        }
        self.bell.ring();
    }
}

impl Copying {
    pub(super) fn new(
        memory: CopyMemory,
        remote: RemoteRing,
        piece_bytes: u32,
    ) -> Result<Box<Self>, SenderError> {
        let layout = remote.layout;
        let blocks_bytes = layout.blocks() as usize * layout.block_bytes() as usize;
        let blocks = RegionSlice::new(Arc::clone(memory.blocks.region()), 0, blocks_bytes);
        let blocks = blocks.map_err(too_small("the memory for send blocks"))?;
        let status = memory.status.region().slice(0, layout.status_bytes());
        status.map_err(too_small("the memory for status bytes"))?;
        Ok(Box::new(Self {
            layout,
            memory: blocks,
            addr: memory.blocks.addr(),
            lkey: memory.blocks.lkey(),
            _blocks: memory.blocks,
            status: memory.status,
            remote,
            piece_bytes,
            ready: ArrayQueue::new(layout.blocks() as usize),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            read_wanted: AtomicBool::new(false),
            reads_in_flight: AtomicU32::new(0),
        }))
    }

    /// Returns the offset of a block's trailer in the memory for send blocks.
    #[inline]
    pub(super) fn trailer_offset(&self, slot: u32) -> usize {
        slot as usize * self.layout.block_bytes() as usize
            + self.layout.max_payload_bytes() as usize
    }

    /// Returns our copy of the peer's `free[]`.
    #[inline]
    pub(super) fn free(&self) -> VolatileSlice<'_> {
        self.status.region().slice(0, self.layout.status_bytes()).expect(INSIDE)
    }

    /// Asks the next driver of the link to read the status bytes.
    #[inline]
    pub(super) fn want_read(&self) {
        self.read_wanted.store(true, Ordering::Release);
    }

    /// Leaves a sealed block to the next driver of the link.
    pub(super) fn leave(&self, slot: u32) {
        // There is room: one entry for every slot.
        let _ = self.ready.push(slot);
    }

    /// Returns whether the link has work that it could do now.
    pub(super) fn has_work(&self) -> bool {
        let wanted = self.read_wanted.load(Ordering::Acquire);
        let in_flight = self.reads_in_flight.load(Ordering::Acquire) as usize;
        (wanted && in_flight < MAX_READS) || !self.ready.is_empty()
    }

    #[inline]
    pub(super) fn remote_addr(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.remote.addr + offset as u64, rkey: self.remote.rkey }
    }

    /// Returns the remote address of a block of `bytes` with its trailer: right-aligned in its slot.
    #[inline]
    pub(super) fn remote_block(&self, slot: u32, bytes: u32) -> RemoteAddr {
        let end = self.layout.slot_offset(slot) + self.layout.block_bytes() as usize;
        self.remote_addr(end - bytes as usize)
    }

    #[inline]
    pub(super) fn block_sge(&self, slot: u32, room_bytes: u32) -> Sge {
        let offset = self.trailer_offset(slot) - room_bytes as usize;
        Sge { addr: self.addr + offset as u64, bytes: room_bytes + TRAILER_BYTES, lkey: self.lkey }
    }

    /// Writes the trailer into the send block.
    #[inline]
    pub(super) fn seal(
        &self,
        epoch: u64,
        slot: u32,
        generation: u64,
        header: &[u64; HEADER_WORDS],
    ) {
        let [h0, h1, h2, h3, h4, h5, h6] = *header;
        let commit = commit_word(epoch, slot, generation, header);
        let (memory, trailer) = (self.memory.memory(), self.trailer_offset(slot));
        let stored = if inline::is_inline(header) {
            let words = [h5, h6, commit].map(u64::to_le);
            memory.store_words(trailer + inline::INLINE_BYTES as usize, &words)
        } else {
            let words = [h0, h1, h2, h3, h4, h5, h6, commit].map(u64::to_le);
            memory.store_words(trailer, &words)
        };
        stored.expect(INSIDE);
    }
}

fn too_small(what: &'static str) -> impl Fn(MemError) -> SenderError {
    move |source| SenderError::Memory { what, source }
}
