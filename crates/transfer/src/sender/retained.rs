//! Unreleased blocks, which can be sent again.
use super::Shared;
use crate::checksum::copy_with_crc;
use crate::commit::commit_word;
use crate::header::BlockHeader;
use crate::inline::without_payload;
use catchment_verbs::mem::{RegionSlice, VolatileSlice};

/// A committed block whose release was not seen. Its memory stays mapped as long as this value lives,
/// even when the collector is gone.
#[derive(Debug)]
pub struct RetainedBlock {
    header: BlockHeader,
    /// The whole slot.
    block: RegionSlice,
}

impl RetainedBlock {
    /// Returns the header.
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Returns the payload.
    pub fn payload(&self) -> VolatileSlice<'_> {
        let trailer = self.block.bytes() - crate::layout::TRAILER_BYTES as usize;
        let offset = trailer - self.header.room_bytes as usize;
        let payload = self.block.memory().subslice(offset, self.header.payload_bytes as usize);
        payload.expect("lengths were checked with the header")
    }

    /// Copies the payload to the beginning of `out`, and returns whether the copy is what was committed, as
    /// far as its checksum tells. The bytes may lie in the collector's memory, where others can write.
    ///
    /// # Panics
    /// If `out` is shorter than the payload.
    pub fn copy_out(&self, out: &mut [u8]) -> bool {
        let out = &mut out[..self.header.payload_bytes as usize];
        let computed = copy_with_crc(&self.payload(), out).expect("as long as the payload");
        self.header.crc().is_none_or(|announced| announced == computed)
    }
}

/// Collects unreleased blocks, sorted by stream, packet and offset. Leaves out a block whose trailer is
/// not the committed one: the collector can write to its own ring.
pub(super) fn collect(shared: &Shared) -> Vec<RetainedBlock> {
    let mut blocks: Vec<RetainedBlock> = (0..shared.layout.blocks())
        .filter_map(|slot| {
            let generation = shared.slots.generations.outstanding(slot)?;
            read(shared, slot, generation)
        })
        .collect();
    blocks.sort_by_key(|block| {
        let header = &block.header;
        (header.stream, header.packet_number, header.frame_offset)
    });
    blocks
}

fn read(shared: &Shared, slot: u32, generation: u64) -> Option<RetainedBlock> {
    let (words, commit) = shared.data.trailer(slot);
    let words = without_payload(words);
    if commit != commit_word(shared.epoch, slot, generation, &words) {
        return None;
    }
    Some(RetainedBlock {
        header: BlockHeader::read(&words, &shared.layout).ok()?,
        block: shared.data.retained(slot),
    })
}
