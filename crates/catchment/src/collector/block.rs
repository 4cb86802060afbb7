//! A block in the collector's hands, counted as its device's as long as it lives.
use crate::observe::DeviceMetrics;
use catchment_transfer::ReceivedBlock;
use std::ops::Deref;
use std::sync::Arc;

/// A received block. Dropping it releases its slot to the source.
pub(crate) struct HeldBlock {
    block: ReceivedBlock,
    _counted: Counted,
}

/// One of the device's blocks in flight.
struct Counted(Arc<DeviceMetrics>);

impl HeldBlock {
    /// Counts the block as one of the device's.
    pub(super) fn new(block: ReceivedBlock, device: &Arc<DeviceMetrics>) -> Self {
        device.blocks_taken(1);
        Self { block, _counted: Counted(device.clone()) }
    }

    /// Tells the source that the block is kept for long.
    pub(crate) fn hold(&mut self) {
        self.block.hold();
    }

    /// Drops the block so that the source takes it for undelivered and sends it again.
    pub(crate) fn abandon(self) {
        self.block.abandon();
    }
}

impl Deref for HeldBlock {
    type Target = ReceivedBlock;

    fn deref(&self) -> &ReceivedBlock {
        &self.block
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.blocks_released(1);
    }
}
