//! The receiving side of the paper's mechanism.
use super::apart::Third;
use super::protocol::{self, Taking};
use super::{INSIDE, PaperHeader, StatusArea, StatusMemory};
use crate::paper::PaperLayout;
use crate::{SetupError, Tag, TakenBlock};
use catchment_transfer::protocol::SlotState;
use catchment_verbs::Mr;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;

/// Polls the third status memory in ring order, from any number of threads. Posts nothing, and does
/// not know the sender.
pub struct PaperReceiver {
    shared: Arc<Shared>,
}

struct Shared {
    mr: Arc<dyn Mr>,
    layout: PaperLayout,
    taking: Taking,
}

impl PaperReceiver {
    /// Makes a receiver of the ring in `mr`. Zeroes all status bytes if `fresh`; otherwise what a sender
    /// left there is received.
    pub fn new(mr: Arc<dyn Mr>, layout: PaperLayout, fresh: bool) -> Result<Self, SetupError> {
        let error = |source| SetupError::Memory { what: "the ring", source };
        let region = mr.region();
        region.slice(0, layout.total_bytes()).map_err(error)?;
        for offset in [layout.status_offset(), layout.released_offset()] {
            let status = region.slice(offset, layout.blocks() as usize).map_err(error)?;
            if fresh {
                status.fill(SlotState::Free as u8).map_err(error)?;
            }
        }
        let taking = Taking::new(layout.blocks());
        Ok(Self { shared: Arc::new(Shared { layout, taking, mr }) })
    }

    /// Takes the next block whose status is 1, in ring order from the last one. Never blocks.
    pub fn poll(&self) -> Option<PaperBlock> {
        let shared = &self.shared;
        let block = shared.taking.claim(&shared.status3())?;
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
    fn status3(&self) -> Third<'_> {
        let layout = &self.layout;
        let area = |offset| StatusArea::new(self.mr.region(), offset, layout.blocks());
        if layout.is_apart() {
            let (sent, released) = (layout.status_offset(), layout.released_offset());
            Third::Apart { sent: area(sent), released: area(released) }
        } else {
            Third::Shared(area(layout.status_offset()))
        }
    }

    fn bytes(&self, block: u32) -> VolatileSlice<'_> {
        let bytes = self.layout.wire_bytes() as usize;
        self.mr.region().slice(self.layout.block_offset(block), bytes).expect(INSIDE)
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
        protocol::hold(&self.shared.status3(), self.block);
    }
}

impl Drop for PaperBlock {
    fn drop(&mut self) {
        self.shared.taking.release(&self.shared.status3(), self.block);
    }
}
