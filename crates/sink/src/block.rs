//! A block in the collector's hands, counted as its device's as long as it lives.
use catchment_observe::DeviceMetrics;
use catchment_transfer::ReceivedBlock;
use std::ops::Deref;
use std::sync::Arc;

/// A received block. Dropping it releases its slot to the source.
pub struct CountedBlock {
    block: ReceivedBlock,
    _counted: Counted,
}

/// One of the device's blocks in flight.
struct Counted(Arc<DeviceMetrics>);

impl CountedBlock {
    /// Counts the block as one of the device's.
    #[inline]
    pub fn new(block: ReceivedBlock, device: &Arc<DeviceMetrics>) -> Self {
        device.blocks_taken(1);
        Self { block, _counted: Counted(device.clone()) }
    }

    /// Tells the source that the block is kept for long.
    #[inline]
    pub fn hold(&mut self) {
        self.block.hold();
    }

    /// Drops the block so that the source takes it for undelivered and sends it again.
    #[inline]
    pub fn abandon(self) {
        self.block.abandon();
    }
}

impl Deref for CountedBlock {
    type Target = ReceivedBlock;

    #[inline]
    fn deref(&self) -> &ReceivedBlock {
        &self.block
    }
}

impl Drop for Counted {
    #[inline]
    fn drop(&mut self) {
        self.0.blocks_released(1);
    }
}
