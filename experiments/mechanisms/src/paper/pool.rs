//! The send blocks of the paper's mechanism, filled by many threads (S1.9, S1.10).
use super::{INSIDE, PaperHeader};
use crate::SetupError;
use crate::paper::PaperLayout;
use catchment_transfer::protocol::SlotState;
use catchment_verbs::Mr;
use catchment_verbs::mem::{CACHE_LINE_BYTES, VolatileSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

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
    next: AtomicU32,
    /// Blocks that a thread is filling.
    filling: Box<[AtomicBool]>,
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
        Ok(Arc::new(Self {
            blocks,
            control,
            layout,
            next: AtomicU32::new(0),
            filling: (0..layout.blocks()).map(|_| AtomicBool::new(false)).collect(),
        }))
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
        self.status1(block).store(SlotState::Full as u8, Ordering::Release);
        self.unclaim(block);
    }

    pub(super) fn unclaim(&self, block: u32) {
        self.filling[block as usize].store(false, Ordering::Release);
    }

    /// Claims the next free block that no other thread is filling.
    pub(super) fn claim(&self) -> Option<u32> {
        let blocks = self.layout.blocks();
        let first = self.next.load(Ordering::Relaxed);
        (0..blocks).map(|i| (first + i) % blocks).find(|&block| {
            let filling = &self.filling[block as usize];
            if filling.swap(true, Ordering::Acquire) {
                return false;
            }
            if self.status1(block).load(Ordering::Acquire) == SlotState::Free as u8 {
                self.next.store((block + 1) % blocks, Ordering::Relaxed);
                return true;
            }
            filling.store(false, Ordering::Release);
            false
        })
    }

    pub(super) fn block_offset(&self, block: u32) -> usize {
        block as usize * self.layout.stride()
    }

    fn block(&self, block: u32) -> VolatileSlice<'_> {
        let bytes = self.layout.wire_bytes() as usize;
        self.blocks.region().slice(self.block_offset(block), bytes).expect(INSIDE)
    }

    pub(super) fn status1(&self, block: u32) -> &AtomicU8 {
        self.control.region().whole().atomic_u8(block as usize).expect(INSIDE)
    }

    pub(super) fn status2_offset(&self) -> usize {
        area_bytes(&self.layout)
    }

    pub(super) fn status2(&self, block: u32) -> &AtomicU8 {
        let control = self.control.region().whole();
        control.atomic_u8(self.status2_offset() + block as usize).expect(INSIDE)
    }
}

fn area_bytes(layout: &PaperLayout) -> usize {
    (layout.blocks() as usize).next_multiple_of(CACHE_LINE_BYTES)
}
