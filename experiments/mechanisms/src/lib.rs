//! One interface for every mechanism that moves blocks, so that a measurement or a test is written
//! once.
//!
//! A [`Mechanism`] is a choice of protocol and of sizes. It says what each end needs
//! ([`EndNeeds`]: queues and memory), and makes a [`SendEnd`] and a [`ReceiveEnd`] of a [`Port`]
//! each. The order of things, which both ends go through together:
//!
//! 1. [`Port::open`] with the needs of that end; [`Port::offer`] to the peer, by any way.
//! 2. [`Port::connect`] with the peer's offer.
//! 3. Once the peer is connected too: [`Mechanism::sender`] or [`Mechanism::receiver`]. They post
//!    receives and map memory, and send nothing.
//! 4. Once the peer has that behind it too: claims and looks.
//!
//! The semantics are the same for all. [`SendEnd::claim`] gives a block of so many bytes in
//! registered memory or says that none is free; nothing blocks. The program fills it and
//! [`SendEnd::commit`]s it. The other end takes it ([`ReceiveEnd::take`]), whole and once, and gives
//! it back by dropping it, in any order and from any thread. What differs is in [`Features`].
//!
//! The mechanisms: [`StatusByte`] is the product's; [`paper`] is the same as published; [`window`] and
//! [`rendezvous`] are what it is compared with; [`tcp`] is a byte stream.
//! [`Protocol`] lists those over verbs by name.
//!
//! How to wait is the caller's decision, by the same [`catchment_transfer::WaitPolicy`] for all: an end that
//! found nothing is asked again, or slept on with its `watch` (arm, look once more, wait).
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "not published: what a name says needs no second line")]

mod catalog;
mod error;
pub mod paper;
mod port;
pub mod rendezvous;
mod send_queue;
mod shared;
mod slots;
mod status_byte;
pub mod tcp;
pub mod window;

pub use catalog::{Protocol, Visit};
pub use error::SetupError;
pub use port::{EndNeeds, MemoryNeed, Offer, OfferParseError, Port, QueueNeeds};
pub(crate) use send_queue::SendQueue;
pub(crate) use shared::{FirstError, InTurn};
pub use slots::{SlotClaim, SlotSender, Slots};
pub use status_byte::{StatusByte, StatusByteReceiver, StatusByteSender, Way};

pub use catchment_channel::{ClaimError, Counts, EndError, PeerFault, RemoteMemory, Tag};

use catchment_transfer::LayoutError;
use catchment_verbs::Watch;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks that can be on their way, N.
    pub blocks: u32,
    /// Most payload bytes of a block.
    pub payload_bytes: u32,
}

/// Where mechanisms differ for their users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// A block may carry less than [`Shape::payload_bytes`].
    pub any_length: bool,
    /// Blocks are taken in the order in which they were committed. Where not,
    /// [`catchment_transfer::order`] sorts them.
    pub in_order: bool,
    /// A block that the receiver keeps stops none of those after it.
    pub out_of_order_release: bool,
    /// Several blocks may be claimed at once. Where not, the next claim takes the place of the one
    /// before if that was not committed.
    pub many_claims: bool,
    /// Bits of [`Tag::stream`] that arrive; the others are lost.
    pub stream_bits: u32,
    /// Bits of [`Tag::packet`] that arrive; the others are lost.
    pub packet_bits: u32,
}

pub trait Mechanism: Copy + Send + 'static {
    type Sender: SendEnd;
    type Receiver: ReceiveEnd;

    fn shape(&self) -> Shape;
    fn features(&self) -> Features;
    /// Queues and memory of the sending end.
    fn sender_needs(&self) -> Result<EndNeeds, LayoutError>;
    /// Queues and memory of the receiving end.
    fn receiver_needs(&self) -> Result<EndNeeds, LayoutError>;
    /// Makes the sending end of a connected port. Sends nothing.
    fn sender(&self, port: Port, peer: &Offer) -> Result<Self::Sender, SetupError>;
    /// Makes the receiving end of a connected port. Sends nothing.
    fn receiver(&self, port: Port, peer: &Offer) -> Result<Self::Receiver, SetupError>;
}

/// The sending end of a mechanism.
pub trait SendEnd: Send + 'static {
    /// A claimed block. Dropping it gives it up.
    type Claim: Send;

    /// Claims a block with room for exactly `bytes` bytes. Never blocks.
    fn claim(&mut self, stream: u32, bytes: u32) -> Result<Self::Claim, ClaimError>;

    /// The memory of a claimed block: exactly the bytes that a commit sends.
    fn memory<'a>(&'a self, claim: &'a Self::Claim) -> VolatileSlice<'a>;

    /// Sends a claimed block with this number. Its stream is that of the claim. When this returns
    /// it is on its way, or goes with a later call.
    fn commit(&mut self, claim: Self::Claim, packet: u64) -> Result<(), EndError>;

    /// Does what is due without a claim: takes completions and credits, posts what waits. To be
    /// called now and then while nothing is claimed or committed.
    fn progress(&mut self) -> Result<(), EndError>;

    /// Looks at the status bytes, whether or not a block is known to be free: the paper's RmFree. To
    /// be called until it says true: the look is done. `None` where there is nothing to look at.
    fn look(&mut self) -> Result<Option<bool>, EndError> {
        Ok(None)
    }

    /// To sleep until a claim may succeed; `None` where the provider or the mechanism cannot. What
    /// rings depends on what the end waits for: to be asked before each sleep.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }

    /// Work that the mechanism wants a thread of its own for, handed out once. If nobody takes it,
    /// claims do it.
    fn helper(&mut self) -> Option<Box<dyn Helper>> {
        None
    }

    fn counts(&self) -> Counts;
}

/// Work for a thread of its own.
pub trait Helper: Send {
    /// Does what there is to do; says whether there was anything. Never blocks.
    fn step(&mut self) -> Result<bool, EndError>;

    /// To sleep until there is something to do.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }
}

pub trait ReceiveEnd: Send + 'static {
    /// A received block. Dropping it gives it back.
    type Block: TakenBlock;

    /// Takes a block, if one is there. Never blocks.
    fn take(&mut self) -> Result<Option<Self::Block>, EndError>;

    /// The same with a look only where the next block should be. It may miss one that is elsewhere:
    /// call [`ReceiveEnd::take`] now and then, and before sleeping
    /// ([`catchment_transfer::Waiter::wants_complete_poll`]).
    #[inline]
    fn take_next(&mut self) -> Result<Option<Self::Block>, EndError> {
        self.take()
    }

    /// To sleep until something came; `None` where the provider cannot, or something is still owed to
    /// the sender: to be asked before each sleep.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }

    fn counts(&self) -> Counts;
}

/// A block that was taken. Dropping it gives it back, from any thread.
pub trait TakenBlock: Send + 'static {
    /// What it says about itself, as far as [`Features`] promise.
    fn tag(&self) -> Tag;

    fn payload(&self) -> VolatileSlice<'_>;

    /// Tells the sender that this block is kept for long, where the mechanism can say so.
    fn hold(&mut self) {}
}
