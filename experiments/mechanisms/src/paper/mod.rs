//! The mechanism as the paper describes it, for experiments.
//!
//! A block is one byte of device number, two bytes of packet number (big-endian here; the paper
//! does not say) and a payload of fixed length. There are three arrays of N status bytes: the first
//! says which send blocks are filled, the second is the sender's copy of the third, which lies at
//! the receiver. Two linked WRITEs send a block: its bytes, unsignaled, then the status byte,
//! inline and signaled. When the copy shows no free block, one READ fetches all N bytes.
//!
//! It relies on an order between two WRITEs that verbs do not promise
//! ([`catchment_verbs::Caps::writes_in_order`]); the model checker shows what happens without it.
//! The product format does not need it.
//!
//! With the bytes of both sides apart ([`PaperLayout::apart`]), which the paper does not have, there is a fourth
//! array, and no cache line at the receiver that both sides write: what sharing one costs is measured so.
mod apart;
mod layout;
mod mechanism;
mod pool;
pub mod protocol;
mod receiver;
mod sender;

pub use layout::PaperLayout;
pub use mechanism::{PaperClaim, PaperReceiveEnd, PaperSendEnd, PaperStatusByte};
pub use pool::{FillError, PaperPool};
pub use receiver::{PaperBlock, PaperReceiver};
pub use sender::{PaperSender, PaperStats, PaperStep};

use crate::ClaimError;
pub(crate) use catchment_channel::geometry::INSIDE;
use catchment_transfer::protocol::SlotState;
use catchment_verbs::mem::{Region, VolatileSlice};
use protocol::StatusBytes;
use std::sync::atomic::Ordering;

/// Device number and packet number: the header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaperHeader {
    pub device: u8,
    pub packet: u16,
}

impl PaperHeader {
    pub fn encode(self) -> [u8; PaperLayout::HEADER_BYTES] {
        let [high, low] = self.packet.to_be_bytes();
        [self.device, high, low]
    }

    pub fn decode([device, high, low]: [u8; PaperLayout::HEADER_BYTES]) -> Self {
        Self { device, packet: u16::from_be_bytes([high, low]) }
    }
}

/// One of the three status memories (S1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusMemory {
    /// 1: filled send blocks. 2: copy of the receiver's. 3: the receiver's.
    pub number: u8,
    /// Address of its first byte, in its owner's process.
    pub addr: u64,
    pub bytes: u32,
    pub access: catchment_verbs::Access,
}

/// Status bytes in registered memory.
struct StatusArea<'a> {
    bytes: VolatileSlice<'a>,
}

impl<'a> StatusArea<'a> {
    fn new(region: &'a Region, offset: usize, blocks: u32) -> Self {
        Self { bytes: region.slice(offset, blocks as usize).expect(INSIDE) }
    }

    fn put(&self, block: u32, value: u8) {
        let byte = self.bytes.atomic_u8(block as usize).expect(INSIDE);
        byte.store(value, Ordering::Release);
    }
}

impl StatusBytes for StatusArea<'_> {
    fn blocks(&self) -> u32 {
        self.bytes.bytes() as u32
    }

    fn load(&self, block: u32) -> u8 {
        self.bytes.atomic_u8(block as usize).expect(INSIDE).load(Ordering::Acquire)
    }

    fn store(&self, block: u32, state: SlotState) {
        self.put(block, state as u8);
    }
}

/// Returns the device of a stream: the header has one byte for it.
pub(crate) fn device_of(stream: u32) -> Result<u8, ClaimError> {
    u8::try_from(stream).map_err(|_| ClaimError::Stream { stream, limit: 1 << u8::BITS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_7_golden_bytes() {
        let header = PaperHeader { device: 12, packet: 0x1234 };
        assert_eq!(header.encode(), [12, 0x12, 0x34]);
        assert_eq!(PaperHeader::decode([12, 0x12, 0x34]), header);
        assert_eq!(PaperLayout::HEADER_BYTES, 3, "the payload begins at byte 3");
    }
}
