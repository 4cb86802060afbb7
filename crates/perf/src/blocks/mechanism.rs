//! What every mechanism that moves blocks has in common, so that a measurement or a test is written
//! once.
//!
//! A [`Mechanism`] is a choice of protocol and of sizes. It says what each end needs
//! ([`EndNeeds`]: queues and memory), and makes a [`SendEnd`] and a [`ReceiveEnd`] of a [`Port`]
//! each. Both ends go through these steps together:
//!
//! 1. [`Port::open`] with the needs of that end; [`Port::offer`] to the peer, by any means.
//! 2. [`Port::connect`] with the peer's offer.
//! 3. Once the peer is connected too: [`Mechanism::sender`] or [`Mechanism::receiver`]. They post
//!    receives and map memory, and send nothing.
//! 4. Once the peer has done that too: claims and polls.
//!
//! The semantics are the same for all. [`SendEnd::claim`] gives a block of so many bytes in
//! registered memory or says that none is free; nothing blocks. The program fills it and
//! [`SendEnd::commit`]s it. The other end takes it ([`ReceiveEnd::take`]), whole and once, and gives
//! it back by dropping it, in any order and from any thread. What differs is in [`Features`].
//!
//! How to wait is the caller's decision: an end that found nothing is asked again, or slept on with its
//! `watch` (arm, look once more, wait).
use super::port::{EndNeeds, Offer, Port};
use super::setup_error::SetupError;
use catchment_channel::{ClaimError, Counts, EndError, Tag};
use catchment_transfer::LayoutError;
use catchment_verbs::Watch;
use catchment_verbs::mem::VolatileSlice;
use std::sync::Arc;

/// Sizes of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks that can be on their way, N.
    pub blocks: u32,
    /// Largest payload of a block.
    pub payload_bytes: u32,
}

/// Where mechanisms differ for their users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// A block may carry less than [`Shape::payload_bytes`].
    pub any_length: bool,
    /// Blocks are taken in the order in which they were committed. Otherwise
    /// [`catchment_transfer::order`] sorts them.
    pub in_order: bool,
    /// A block that the receiver keeps does not hold up those after it.
    pub out_of_order_release: bool,
    /// Several blocks may be claimed at once. Otherwise the next claim replaces one that was not
    /// committed.
    pub many_claims: bool,
    /// Bits of [`Tag::stream`] that arrive; the others are lost.
    pub stream_bits: u32,
    /// Bits of [`Tag::packet`] that arrive; the others are lost.
    pub packet_bits: u32,
}

/// A choice of protocol and of sizes.
pub trait Mechanism: Copy + Send + 'static {
    /// Its sending end.
    type Sender: SendEnd;
    /// Its receiving end.
    type Receiver: ReceiveEnd;

    /// Returns its sizes.
    fn shape(&self) -> Shape;

    /// Returns what its users may rely on.
    fn features(&self) -> Features;

    /// Returns the queues and memory of the sending end.
    ///
    /// # Errors
    /// No layout has this shape.
    fn sender_needs(&self) -> Result<EndNeeds, LayoutError>;

    /// Returns the queues and memory of the receiving end.
    ///
    /// # Errors
    /// No layout has this shape.
    fn receiver_needs(&self) -> Result<EndNeeds, LayoutError>;

    /// Makes the sending end of a connected port. Sends nothing.
    ///
    /// # Errors
    /// Port or offer do not fit, or the device refused.
    fn sender(&self, port: Port, peer: &Offer) -> Result<Self::Sender, SetupError>;

    /// Makes the receiving end of a connected port. Sends nothing.
    ///
    /// # Errors
    /// Port or offer do not fit, or the device refused.
    fn receiver(&self, port: Port, peer: &Offer) -> Result<Self::Receiver, SetupError>;
}

/// Something done with a mechanism of any type.
pub trait Visit {
    /// What comes of it.
    type Out;

    /// Does it with this mechanism.
    fn visit<M: Mechanism>(self, mechanism: M) -> Self::Out;
}

/// The sending end of a mechanism. An [`EndError`] is final: the connection is over.
pub trait SendEnd: Send + 'static {
    /// A claimed block. Dropping it gives it up.
    type Claim: Send;

    /// Claims a block with room for exactly `bytes` bytes. Never blocks.
    ///
    /// # Errors
    /// [`ClaimError::WouldBlock`] if no block is free.
    fn claim(&mut self, stream: u32, bytes: u32) -> Result<Self::Claim, ClaimError>;

    /// Returns the memory of a claimed block: exactly the bytes that a commit sends.
    fn memory<'a>(&'a self, claim: &'a Self::Claim) -> VolatileSlice<'a>;

    /// Sends a claimed block with this number, in the stream of its claim. On return the block is on
    /// its way, or leaves with a later call.
    ///
    /// # Errors
    /// The connection is over.
    fn commit(&mut self, claim: Self::Claim, packet: u64) -> Result<(), EndError>;

    /// Does what is due without a claim: takes completions and credits, posts what waits. To be
    /// called now and then while nothing is claimed or committed.
    ///
    /// # Errors
    /// The connection is over.
    fn progress(&mut self) -> Result<(), EndError>;

    /// Reads the status bytes, whether or not a block is known to be free: the paper's RmFree. To be
    /// called until it returns true: the read is done. `None` for a mechanism without status bytes.
    ///
    /// # Errors
    /// The connection is over.
    fn look(&mut self) -> Result<Option<bool>, EndError> {
        Ok(None)
    }

    /// Returns what to sleep on until a claim may succeed; `None` where the provider or the mechanism
    /// has no doorbell. Asked before each sleep, since it depends on what the end waits for.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }

    /// Hands out, once, the work that the mechanism wants a thread of its own for. If it is not taken,
    /// claims do it.
    fn helper(&mut self) -> Option<Box<dyn Helper>> {
        None
    }

    /// Returns what was moved and asked for so far.
    fn counts(&self) -> Counts;
}

/// Work for a thread of its own.
pub trait Helper: Send {
    /// Does what there is to do; returns whether there was anything. Never blocks.
    ///
    /// # Errors
    /// The connection is over.
    fn step(&mut self) -> Result<bool, EndError>;

    /// Returns what to sleep on until there is something to do.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }
}

/// The receiving end of a mechanism. An [`EndError`] is final: the connection is over.
pub trait ReceiveEnd: Send + 'static {
    /// A received block. Dropping it gives it back.
    type Block: TakenBlock;

    /// Takes a block, if one is there. Never blocks.
    ///
    /// # Errors
    /// The connection is over.
    fn take(&mut self) -> Result<Option<Self::Block>, EndError>;

    /// Polls only where the next block should be, and may miss one that is elsewhere: call
    /// [`ReceiveEnd::take`] now and then, and before sleeping
    /// ([`catchment_transfer::Waiter::wants_complete_poll`]).
    ///
    /// # Errors
    /// The connection is over.
    #[inline]
    fn take_next(&mut self) -> Result<Option<Self::Block>, EndError> {
        self.take()
    }

    /// Returns what to sleep on until a block has come; `None` where the provider has no doorbell, or
    /// the sender still waits for something. Asked before each sleep.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }

    /// Returns what was moved so far.
    fn counts(&self) -> Counts;
}

/// A block that was taken. Dropping it gives it back, from any thread.
pub trait TakenBlock: Send + 'static {
    /// Returns its stream and number, as far as [`Features`] promise.
    fn tag(&self) -> Tag;

    /// Returns its bytes.
    fn payload(&self) -> VolatileSlice<'_>;

    /// Tells the sender that this block is kept for long, where the mechanism can.
    fn hold(&mut self) {}
}
