//! The sliding window that the status-byte paper compares with, as described there.
//!
//! | | |
//! |---|---|
//! | block | device number and packet number, then the payload, as the paper's status-byte mechanism has it ([`crate::paper`]) |
//! | data | one WRITE_WITH_IMM a block, signaled; the immediate has position and length ([`ImmediateFormat`]) |
//! | receives | N at first, then reposted one by one |
//! | acknowledgement | a SEND of four bytes, the position, for every block; the sender takes it on a thread of its own ([`AckThread`]) |
//! | window | head and tail of a ring of N blocks |
//! | queues | sender: receive queue N, two completion queues of N; receiver: receive queue N, one completion queue of N for everything |
//!
//! What the paper leaves open is chosen in its favour. A receive is reposted before the
//! acknowledgement is sent, so that the sender never gets an RNR NAK. Acknowledgements are unsignaled:
//! otherwise their completions would not fit the receiver's queue beside N receives. Before its send
//! queue is full, and while a receive is not reposted yet, the receiver posts one empty WRITE,
//! signaled, and waits for it.
mod ack;
mod imm;
mod receiver;
mod sender;

pub use ack::AckThread;
pub use imm::{Immediate, ImmediateFormat};
pub use receiver::{SwPaperBlock, SwPaperReceiver};
pub use sender::{RingSlots, SwPaperSender};

use crate::paper::PaperLayout;
use crate::slots::FEATURES;
use crate::{
    EndNeeds, Features, Mechanism, MemoryNeed, Offer, Port, QueueNeeds, SetupError, Shape,
};
use catchment_transfer::LayoutError;
use catchment_verbs::Access;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwPaper {
    pub shape: Shape,
}

/// Bytes of an acknowledgement: the position, big-endian.
pub(crate) const ACK_BYTES: u32 = 4;
/// Outstanding acknowledgements of the receiver. The paper does not say how many it allows.
const ACK_SEND_WR: u32 = 64;

impl SwPaper {
    pub fn new(shape: Shape) -> Self {
        Self { shape }
    }

    fn layout(&self) -> Result<PaperLayout, LayoutError> {
        let layout = PaperLayout::new(self.shape.blocks, self.shape.payload_bytes)?;
        let limit = ImmediateFormat::new(layout.blocks()).max_bytes();
        if layout.payload_bytes() > limit {
            return Err(LayoutError::Immediate {
                blocks: layout.blocks(),
                payload_bytes: layout.payload_bytes(),
                limit,
            });
        }
        Ok(layout)
    }
}

impl Mechanism for SwPaper {
    type Sender = SwPaperSender;
    type Receiver = SwPaperReceiver;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn features(&self) -> Features {
        Features { out_of_order_release: false, stream_bits: 8, packet_bits: 16, ..FEATURES }
    }

    fn sender_needs(&self) -> Result<EndNeeds, LayoutError> {
        let layout = self.layout()?;
        let blocks = layout.blocks();
        Ok(EndNeeds {
            queues: QueueNeeds {
                max_send_wr: blocks,
                max_recv_wr: blocks,
                send_cqe: blocks,
                recv_cqe: blocks,
                max_inline_bytes: 0,
            },
            memory: vec![
                MemoryNeed::new(
                    "acknowledgements",
                    (blocks * ACK_BYTES) as usize,
                    Access::LOCAL_WRITE,
                ),
                MemoryNeed::new("send blocks", layout.blocks_bytes(), Access::empty()),
            ],
        })
    }

    fn receiver_needs(&self) -> Result<EndNeeds, LayoutError> {
        let layout = self.layout()?;
        Ok(EndNeeds {
            queues: QueueNeeds {
                max_send_wr: ACK_SEND_WR,
                max_recv_wr: layout.blocks(),
                send_cqe: layout.blocks(),
                recv_cqe: 0,
                max_inline_bytes: ACK_BYTES,
            },
            memory: vec![MemoryNeed::new(
                "the blocks",
                layout.blocks_bytes(),
                Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            )],
        })
    }

    fn sender(&self, port: Port, peer: &Offer) -> Result<SwPaperSender, SetupError> {
        RingSlots::sender(self.layout()?, port, peer)
    }

    fn receiver(&self, port: Port, _: &Offer) -> Result<SwPaperReceiver, SetupError> {
        SwPaperReceiver::new(self.layout()?, port)
    }
}
