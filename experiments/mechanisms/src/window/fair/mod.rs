//! A sliding window with the same care as the status bytes.
//!
//! | | |
//! |---|---|
//! | data | one WRITE_WITH_IMM a block, or one WRITE whose last eight bytes say that it is there |
//! | receives | reposted in lists of N/2, ahead of the credits: the sender never gets an RNR NAK |
//! | credit | one 64-bit count of all released blocks, written inline and unsignaled into the sender's memory, every N/4 blocks and whenever the receiver finds nothing to do |
//! | sender | no thread for acknowledgements; reads the count and takes completions only when the window is full |
//! | several windows | on one queue pair and one thread, each with its own credit |
//!
//! Headers and slots are those of the product's format, so that the same bytes move. The selective
//! form writes a bit for each slot in place of the count, a status map: slots come back in any order.
mod arrivals;
mod carrier;
mod credit;
mod receiver;
mod returns;
mod sender;

pub use receiver::{SwFairBlock, SwFairReceiver};
pub use sender::{SwFairSender, WindowSlot, WindowSlots};

use crate::slots::FEATURES;
use crate::{
    EndNeeds, Features, Mechanism, MemoryNeed, Offer, Port, QueueNeeds, SetupError, Shape,
};
use catchment_channel::geometry::Geometry;
use catchment_transfer::LayoutError;
use catchment_transfer::layout::LINE_BYTES;
use catchment_verbs::Access;

/// How a block is announced, and how slots come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// WRITE_WITH_IMM, and a count of released slots.
    WriteImm,
    /// WRITE_WITH_IMM, and a bit for each slot (SACK).
    Selective,
    /// A WRITE whose last eight bytes announce it ([`catchment_verbs::Caps::data_in_order`]), and a
    /// count.
    Tail,
    /// The same with blocks filled in the receiver's memory, and the count stored into the sender's
    /// ([`catchment_verbs::Caps::direct`]).
    TailInPlace,
}

impl Form {
    pub(crate) fn has_imm(self) -> bool {
        matches!(self, Self::WriteImm | Self::Selective)
    }

    fn is_selective(self) -> bool {
        self == Self::Selective
    }
}

/// The fair sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwFair {
    pub shape: Shape,
    pub form: Form,
    /// Windows on this queue pair; stream s goes through window s modulo this.
    pub windows: u32,
    /// Send requests of the sender outstanding at once; at least 1.
    pub max_send_wr: u32,
}

impl SwFair {
    /// One window, with a send queue as long as that of the product's mechanism.
    pub fn new(shape: Shape, form: Form) -> Self {
        Self { shape, form, windows: 1, max_send_wr: 128 }
    }

    #[must_use]
    pub fn with_windows(self, windows: u32) -> Self {
        Self { windows, ..self }
    }

    fn geometry(&self) -> Result<Geometry, LayoutError> {
        Geometry::new(self.shape.blocks, self.shape.payload_bytes, self.windows)
    }

    /// Returns the number of receives posted with one call.
    fn receive_list(&self, geometry: &Geometry) -> u32 {
        if self.form.has_imm() { geometry.places().div_ceil(2) } else { 0 }
    }
}

/// Returns the number of released blocks that make a credit.
fn credit_every(blocks: u32) -> u32 {
    blocks.div_ceil(4)
}

/// Returns the bytes of the sender's memory for the credit of a window: whole lines of its own.
fn credit_bytes(form: Form, blocks: u32) -> usize {
    let words = if form.is_selective() { blocks.div_ceil(u64::BITS) } else { 1 };
    (words as usize * 8).next_multiple_of(LINE_BYTES as usize)
}

/// Send requests of the receiver: unacknowledged credits.
const CREDIT_SEND_WR: u32 = 32;

impl Mechanism for SwFair {
    type Sender = SwFairSender;
    type Receiver = SwFairReceiver;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn features(&self) -> Features {
        Features { out_of_order_release: self.form.is_selective(), ..FEATURES }
    }

    fn sender_needs(&self) -> Result<EndNeeds, LayoutError> {
        let geometry = self.geometry()?;
        let credits = credit_bytes(self.form, geometry.blocks()) * geometry.windows() as usize;
        let in_place = self.form == Form::TailInPlace;
        Ok(EndNeeds {
            queues: QueueNeeds {
                max_send_wr: if in_place { 1 } else { self.max_send_wr },
                max_recv_wr: 0,
                // A completion for every half of the send queue, or for every window that is full.
                send_cqe: 2 + geometry.windows(),
                recv_cqe: 0,
                max_inline_bytes: 0,
            },
            memory: vec![
                MemoryNeed::new("the credits", credits, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
                MemoryNeed::new(
                    "send blocks",
                    if in_place { 1 } else { geometry.total_bytes() },
                    Access::empty(),
                ),
            ],
        })
    }

    fn receiver_needs(&self) -> Result<EndNeeds, LayoutError> {
        let geometry = self.geometry()?;
        let list = self.receive_list(&geometry);
        let receives = if list > 0 { geometry.places() + list } else { 0 };
        Ok(EndNeeds {
            queues: QueueNeeds {
                max_send_wr: CREDIT_SEND_WR,
                max_recv_wr: receives,
                send_cqe: 2,
                recv_cqe: receives.max(1),
                max_inline_bytes: LINE_BYTES,
            },
            memory: vec![MemoryNeed::new(
                "the slots",
                geometry.total_bytes(),
                Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            )],
        })
    }

    fn sender(&self, port: Port, peer: &Offer) -> Result<SwFairSender, SetupError> {
        WindowSlots::sender(self, port, peer)
    }

    fn receiver(&self, port: Port, peer: &Offer) -> Result<SwFairReceiver, SetupError> {
        SwFairReceiver::new(self, port, peer)
    }
}
