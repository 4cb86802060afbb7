//! The receiving side of the paper's mechanism.
use super::{INSIDE, PaperHeader, StatusMemory};
use crate::paper::PaperLayout;
use crate::{SetupError, Tag, TakenBlock};
use catchment_transfer::protocol::SlotState;
use catchment_verbs::Mr;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Polls the third status memory in ring order, from any number of threads. Posts nothing, and does
/// not know the sender.
pub struct PaperReceiver {
    shared: Arc<Shared>,
}

struct Shared {
    mr: Arc<dyn Mr>,
    layout: PaperLayout,
    next: AtomicU32,
    taken: Box<[AtomicBool]>,
}

impl PaperReceiver {
    /// Makes a receiver of the ring in `mr`. Zeroes all status bytes if `fresh`; otherwise what a sender
    /// left there is received.
    pub fn new(mr: Arc<dyn Mr>, layout: PaperLayout, fresh: bool) -> Result<Self, SetupError> {
        let error = |source| SetupError::Memory { what: "the ring", source };
        let region = mr.region();
        region.slice(0, layout.total_bytes()).map_err(error)?;
        let status =
            region.slice(layout.status_offset(), layout.blocks() as usize).map_err(error)?;
        if fresh {
            status.fill(SlotState::Free as u8).map_err(error)?;
        }
        let taken = (0..layout.blocks()).map(|_| AtomicBool::new(false));
        Ok(Self {
            shared: Arc::new(Shared {
                layout,
                next: AtomicU32::new(0),
                taken: taken.collect(),
                mr,
            }),
        })
    }

    /// Takes the next block whose status is 1, in ring order from the last one. Never blocks.
    pub fn poll(&self) -> Option<PaperBlock> {
        let shared = &self.shared;
        let blocks = shared.layout.blocks();
        let first = shared.next.load(Ordering::Relaxed);
        let block = (0..blocks).map(|i| (first + i) % blocks).find(|&block| shared.claim(block))?;
        shared.next.store((block + 1) % blocks, Ordering::Relaxed);
        let mut header = [0; PaperLayout::HEADER_BYTES];
        shared.bytes(block).read_at(0, &mut header).expect(INSIDE);
        Some(PaperBlock { shared: Arc::clone(shared), block, header: PaperHeader::decode(header) })
    }

    pub fn memory_map(&self) -> StatusMemory {
        let shared = &self.shared;
        StatusMemory {
            number: 3,
            addr: shared.mr.addr() + shared.layout.status_offset() as u64,
            bytes: shared.layout.blocks(),
            access: shared.mr.access(),
        }
    }
}

impl Shared {
    fn status3(&self, block: u32) -> &AtomicU8 {
        let offset = self.layout.status_offset() + block as usize;
        self.mr.region().whole().atomic_u8(offset).expect(INSIDE)
    }

    fn bytes(&self, block: u32) -> VolatileSlice<'_> {
        let bytes = self.layout.wire_bytes() as usize;
        self.mr.region().slice(self.layout.block_offset(block), bytes).expect(INSIDE)
    }

    fn is_full(&self, block: u32) -> bool {
        self.status3(block).load(Ordering::Acquire) == SlotState::Full as u8
    }

    /// Claims a full block. Checks the status again under the claim: another thread may have taken and
    /// released the block meanwhile.
    fn claim(&self, block: u32) -> bool {
        let taken = &self.taken[block as usize];
        if !self.is_full(block) || taken.swap(true, Ordering::Acquire) {
            return false;
        }
        if self.is_full(block) {
            return true;
        }
        taken.store(false, Ordering::Release);
        false
    }
}

/// A received block. Dropping it sets its status to 0.
pub struct PaperBlock {
    shared: Arc<Shared>,
    block: u32,
    header: PaperHeader,
}

impl PaperBlock {
    pub fn header(&self) -> PaperHeader {
        self.header
    }

    pub fn block(&self) -> u32 {
        self.block
    }
}

impl TakenBlock for PaperBlock {
    fn tag(&self) -> Tag {
        Tag { stream: self.header.device.into(), packet: self.header.packet.into() }
    }

    fn payload(&self) -> VolatileSlice<'_> {
        let bytes = self.shared.layout.payload_bytes() as usize;
        self.shared.bytes(self.block).subslice(PaperLayout::HEADER_BYTES, bytes).expect(INSIDE)
    }

    /// Marks the block as unavailable: from 1 to 2, never from 0 (S1.18).
    fn hold(&mut self) {
        self.shared.status3(self.block).store(SlotState::Unavailable as u8, Ordering::Release);
    }
}

impl Drop for PaperBlock {
    fn drop(&mut self) {
        let status = self.shared.status3(self.block);
        status.store(SlotState::Free as u8, Ordering::Release);
        // After the status: while it was 1, another thread would have taken the block again.
        self.shared.taken[self.block as usize].store(false, Ordering::Release);
    }
}
