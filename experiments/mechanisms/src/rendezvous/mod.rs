//! Rendezvous: the receiver announces where a block may go, the sender writes it there and announces
//! it. Three messages per block, the "traditional" exchange of the papers.
//!
//! | | |
//! |---|---|
//! | address notice | a SEND of 16 bytes, inline: address and key of a free slot |
//! | data | a WRITE |
//! | completion notice | a SEND of 16 bytes, inline, posted with the WRITE in one call |
//!
//! All N slots are announced ahead, so that up to N exchanges overlap; a slot is announced again as
//! soon as its block is released, in any order. Receives are reposted in lists of N/2, and requests
//! are signaled only when the queue needs it. Headers and slots are those of the product's
//! format.
mod notice;
mod receiver;
mod receives;
mod sender;

pub use notice::{AddressNotice, CompletionNotice};
pub use receiver::{RendezvousBlock, RendezvousReceiver};
pub use sender::{AnnouncedSlots, RendezvousSender};

use crate::slots::FEATURES;
use crate::{
    EndNeeds, Features, Mechanism, MemoryNeed, Offer, Port, QueueNeeds, SetupError, Shape,
};
use catchment_channel::geometry::Geometry;
use catchment_transfer::LayoutError;
use catchment_verbs::Access;

/// The rendezvous mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendezvous {
    pub shape: Shape,
    /// Send requests of the sender outstanding at once; at least 2.
    pub max_send_wr: u32,
}

impl Rendezvous {
    pub fn new(shape: Shape) -> Self {
        Self { shape, max_send_wr: 128 }
    }

    fn geometry(&self) -> Result<Geometry, LayoutError> {
        Geometry::new(self.shape.blocks, self.shape.payload_bytes, 1)
    }

    fn needs(
        &self,
        max_send_wr: u32,
        what: &'static str,
        access: Access,
    ) -> Result<EndNeeds, LayoutError> {
        let geometry = self.geometry()?;
        let receives = receives(geometry.blocks());
        let notices_bytes = (receives * NOTICE_BYTES) as usize;
        Ok(EndNeeds {
            queues: QueueNeeds {
                max_send_wr,
                max_recv_wr: receives,
                send_cqe: 4,
                recv_cqe: receives,
                max_inline_bytes: NOTICE_BYTES,
            },
            memory: vec![
                MemoryNeed::new("notices", notices_bytes, Access::LOCAL_WRITE),
                MemoryNeed::new(what, geometry.total_bytes(), access),
            ],
        })
    }
}

const NOTICE_BYTES: u32 = 16;

/// Receives posted with one call.
fn receive_list(blocks: u32) -> u32 {
    blocks.div_ceil(2)
}

fn receives(blocks: u32) -> u32 {
    blocks + receive_list(blocks)
}

/// Returns the slot at this address of memory that begins at `begin`.
fn slot_at(geometry: &Geometry, begin: u64, addr: u64) -> Option<u32> {
    let offset = addr.checked_sub(begin)?;
    let slot_bytes = u64::from(geometry.block_bytes());
    let slot = offset / slot_bytes;
    (offset.is_multiple_of(slot_bytes) && slot < geometry.blocks().into()).then_some(slot as u32)
}

impl Mechanism for Rendezvous {
    type Sender = RendezvousSender;
    type Receiver = RendezvousReceiver;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn features(&self) -> Features {
        FEATURES
    }

    fn sender_needs(&self) -> Result<EndNeeds, LayoutError> {
        self.needs(self.max_send_wr, "send blocks", Access::empty())
    }

    fn receiver_needs(&self) -> Result<EndNeeds, LayoutError> {
        let max_send_wr = receives(self.geometry()?.blocks()).max(8);
        self.needs(max_send_wr, "the slots", Access::LOCAL_WRITE | Access::REMOTE_WRITE)
    }

    fn sender(&self, port: Port, peer: &Offer) -> Result<RendezvousSender, SetupError> {
        AnnouncedSlots::sender(self, port, peer)
    }

    fn receiver(&self, port: Port, _: &Offer) -> Result<RendezvousReceiver, SetupError> {
        RendezvousReceiver::new(self, port)
    }
}
