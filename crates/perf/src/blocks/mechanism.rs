//! What a mechanism must offer so that its blocks can be measured.
use crate::PerfError;
use catchment_verbs::mem::VolatileSlice;
use catchment_verbs::{Context, Endpoint, Watch};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sizes of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockShape {
    /// Blocks that can be on their way.
    pub blocks: u32,
    /// Bytes of each block.
    pub bytes: u32,
}

/// Descriptions of a side's two ports, as text for the other side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// The port that it sends from.
    pub sends: String,
    /// The port that it takes at.
    pub takes: String,
}

/// A way to move blocks. Each side has one end that sends and one that takes.
pub trait BlockMechanism: Sync {
    /// Returns its name, as plans and tables have it.
    fn name(&self) -> &'static str;

    /// Returns whether blocks are filled in the peer's memory, which needs
    /// [`Caps::direct`](catchment_verbs::Caps::direct).
    fn fills_in_place(&self) -> bool {
        false
    }

    /// Acquires queues and memory for both ends of a side.
    ///
    /// # Errors
    /// [`PerfError::Failed`] with what the device refused.
    fn open(
        &self,
        context: &dyn Context,
        shape: BlockShape,
    ) -> Result<Box<dyn BlockPort>, PerfError>;
}

impl fmt::Debug for dyn BlockMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Queues and memory of a side.
pub trait BlockPort {
    /// Returns what the other side must know of them.
    fn ports(&self) -> Ports;

    /// Connects to the other side's ports. `agreed` turns an endpoint into the one that the two
    /// sides agreed on.
    ///
    /// # Errors
    /// [`PerfError::Failed`] for text that describes no ports, and for what the device refused.
    fn connect(
        &mut self,
        peer: &Ports,
        agreed: &dyn Fn(Endpoint) -> Endpoint,
    ) -> Result<(), PerfError>;

    /// Makes the two ends, once the other side is connected too. Sends nothing.
    ///
    /// # Errors
    /// [`PerfError::Failed`] with the step that failed.
    fn ends(self: Box<Self>) -> Result<Box<dyn BlockEnds>, PerfError>;
}

/// The two ends of a side. Nothing here blocks. All errors are [`PerfError::Failed`], and final.
pub trait BlockEnds {
    /// Copies `content` into a free block and sends it under this number, of which 16 bits must
    /// arrive. Returns false if no block is free.
    ///
    /// # Errors
    /// The connection is over.
    fn try_send(&mut self, content: &[u8], packet: u64) -> Result<bool, PerfError>;

    /// Takes a block, touches its last byte, and gives it back. Returns its first byte, or `None` if
    /// no block is there.
    ///
    /// # Errors
    /// The connection is over.
    fn try_take(&mut self) -> Result<Option<u8>, PerfError>;

    /// Does what is due for blocks sent before.
    ///
    /// # Errors
    /// The connection is over.
    fn progress(&mut self) -> Result<(), PerfError>;

    /// Returns what to sleep on until a block is free. Asked before each sleep.
    fn send_watch(&self) -> Option<Arc<dyn Watch>>;

    /// Returns what to sleep on until a block has come. Asked before each sleep.
    fn take_watch(&self) -> Option<Arc<dyn Watch>>;
}

/// Reads the first and the last byte of a block, as little as shows that all of it is here, and
/// returns the first.
///
/// # Errors
/// [`PerfError::Failed`] for a block without bytes.
pub fn read_block(payload: VolatileSlice<'_>) -> Result<u8, PerfError> {
    let byte = |at| payload.load_u8(at, Ordering::Relaxed);
    let last = payload.bytes().checked_sub(1);
    let last = last.ok_or_else(|| PerfError::failed("a block without bytes"))?;
    std::hint::black_box(byte(last).map_err(PerfError::failed)?);
    byte(0).map_err(PerfError::failed)
}
