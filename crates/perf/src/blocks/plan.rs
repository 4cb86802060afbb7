//! What a measurement of blocks is told.
use super::mechanism::Shape;
use crate::PerfError;
use crate::operation::Figure;
use crate::plan::{Amount, Waiting};
use serde::{Deserialize, Serialize};

/// One measurement of blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockPlan {
    /// Name of what moves the blocks; both sides must have it.
    pub mechanism: String,
    /// Blocks that can be on their way, 1 to [`BlockPlan::BLOCKS_MAX`].
    pub blocks: u32,
    /// Bytes of a block, 1 to [`BlockPlan::BYTES_MAX`].
    pub bytes: u32,
    /// What is asked.
    pub figure: Figure,
    /// How much.
    pub amount: Amount,
    /// How both sides wait.
    pub waiting: Waiting,
}

impl BlockPlan {
    /// Most blocks.
    pub const BLOCKS_MAX: u32 = 4096;
    /// Longest block.
    pub const BYTES_MAX: u32 = 1 << 26;
    /// Most memory of an end.
    const RING_BYTES_MAX: u64 = 1 << 30;

    /// Whether it can be carried out.
    ///
    /// # Errors
    /// [`PerfError::Plan`] with the limit that it does not keep.
    pub fn check(&self) -> Result<(), PerfError> {
        let fault = |text: String| Err(PerfError::Plan(text));
        let (blocks, bytes) = (self.blocks, self.bytes);
        if !(1..=Self::BLOCKS_MAX).contains(&blocks) {
            let most = Self::BLOCKS_MAX;
            return fault(format!("1 to {most} blocks can be on their way, not {blocks}"));
        }
        if !(1..=Self::BYTES_MAX).contains(&bytes) {
            let most = Self::BYTES_MAX;
            return fault(format!("a block has 1 to {most} bytes, not {bytes}"));
        }
        let all = u64::from(blocks) * u64::from(bytes);
        if all > Self::RING_BYTES_MAX {
            let most = Self::RING_BYTES_MAX;
            return fault(format!("{blocks} blocks of {bytes} bytes are {all}, more than {most}"));
        }
        self.amount.check()
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { blocks: self.blocks, payload_bytes: self.bytes }
    }
}
