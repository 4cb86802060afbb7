//! The send blocks of the paper's mechanism, filled by many threads (S1.9, S1.10).
use super::apart::Second;
use super::protocol::Filling;
use super::{INSIDE, PaperHeader, StatusArea};
use crate::SetupError;
use crate::paper::PaperLayout;
use catchment_transfer::protocol::SlotState;
use catchment_verbs::Mr;
use catchment_verbs::mem::{CACHE_LINE_BYTES, VolatileSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// All send blocks are full: retry later.
    #[error("no free send block")]
    WouldBlock,
    /// Payloads have a fixed length.
    #[error("a payload of {given} bytes, blocks carry exactly {wanted}")]
    Length { given: usize, wanted: u32 },
}

/// N send blocks and the first two status memories, in registered memory.
pub struct PaperPool {
    pub(super) blocks: Arc<dyn Mr>,
    pub(super) control: Arc<dyn Mr>,
    pub(super) layout: PaperLayout,
    filling: Filling,
    /// Where the bytes of both sides are apart: the sender's byte of each block at the receiver.
    sent: Box<[AtomicU8]>,
}

impl PaperPool {
    pub fn control_bytes(layout: &PaperLayout) -> usize {
        2 * area_bytes(layout)
    }

    /// Makes a pool over registered memory: `blocks` for send blocks, `control` for status bytes (with
    /// [`catchment_verbs::Access::LOCAL_WRITE`]). Zeroes all status bytes.
    pub fn new(
        blocks: Arc<dyn Mr>,
        control: Arc<dyn Mr>,
        layout: PaperLayout,
    ) -> Result<Arc<Self>, SetupError> {
        let fits = |mr: &Arc<dyn Mr>, bytes, what| match mr.region().slice(0, bytes) {
            Ok(memory) => memory.fill(0).map_err(|source| SetupError::Memory { what, source }),
            Err(source) => Err(SetupError::Memory { what, source }),
        };
        fits(&blocks, layout.blocks_bytes(), "the send blocks")?;
        fits(&control, Self::control_bytes(&layout), "the status memory")?;
        let (filling, of_each) = (Filling::new(layout.blocks()), 0..layout.blocks());
        let sent = of_each.map(|_| AtomicU8::new(0)).collect();
        Ok(Arc::new(Self { blocks, control, layout, filling, sent }))
    }

    /// Fills the next free send block, from any thread: header and payload first, its status last.
    pub fn fill(&self, header: PaperHeader, payload: &[u8]) -> Result<u32, FillError> {
        if payload.len() != self.layout.payload_bytes() as usize {
            return Err(FillError::Length {
                given: payload.len(),
                wanted: self.layout.payload_bytes(),
            });
        }
        let block = self.claim().ok_or(FillError::WouldBlock)?;
        self.payload(block).write_at(0, payload).expect(INSIDE);
        self.publish(block, header);
        Ok(block)
    }

    pub(super) fn payload(&self, block: u32) -> VolatileSlice<'_> {
        let payload_bytes = self.layout.payload_bytes() as usize;
        self.block(block).subslice(PaperLayout::HEADER_BYTES, payload_bytes).expect(INSIDE)
    }

    pub(super) fn publish(&self, block: u32, header: PaperHeader) {
        self.block(block).write_at(0, &header.encode()).expect(INSIDE);
        self.filling.publish(&self.status1(), block);
    }

    pub(super) fn unclaim(&self, block: u32) {
        self.filling.unclaim(block);
    }

    pub(super) fn claim(&self) -> Option<u32> {
        self.filling.claim(&self.status1())
    }

    pub(super) fn block_offset(&self, block: u32) -> usize {
        block as usize * self.layout.stride()
    }

    fn block(&self, block: u32) -> VolatileSlice<'_> {
        let bytes = self.layout.wire_bytes() as usize;
        self.blocks.region().slice(self.block_offset(block), bytes).expect(INSIDE)
    }

    /// The first status memory: which send blocks are filled.
    pub(super) fn status1(&self) -> StatusArea<'_> {
        self.area(0)
    }

    pub(super) fn status2_offset(&self) -> usize {
        area_bytes(&self.layout)
    }

    /// The second status memory: which blocks of the receiver are known to be free.
    pub(super) fn status2(&self) -> Second<'_> {
        let copy = self.area(self.status2_offset());
        if self.layout.is_apart() {
            Second::Apart { released: copy, sent: &self.sent }
        } else {
            Second::Shared(copy)
        }
    }

    /// Returns what is written to the receiver to say that a block is full.
    pub(super) fn full_byte(&self, block: u32) -> u8 {
        if self.layout.is_apart() {
            self.sent[block as usize].load(Ordering::Relaxed) ^ 1
        } else {
            SlotState::Full as u8
        }
    }

    fn area(&self, offset: usize) -> StatusArea<'_> {
        StatusArea::new(self.control.region(), offset, self.layout.blocks())
    }
}

fn area_bytes(layout: &PaperLayout) -> usize {
    (layout.blocks() as usize).next_multiple_of(CACHE_LINE_BYTES)
}
