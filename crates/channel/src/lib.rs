//! A duplex channel over one queue pair: messages in both directions at once, and READs and WRITEs of memory
//! that both ends share. A key-value store or a tunnel stands on it.
//!
//! # Data in, data out
//!
//! 1. [`Resources::acquire`] takes queues and memory from a device. [`Resources::card`] describes
//!    them in 72 bytes for the peer. How the two ends exchange their [`Card`]s is up to the program;
//!    [`establish`] does it over a socket, as `rdma_cm` would.
//! 2. [`Channel::connect`] with the peer's card brings the queue pair up and posts all receives.
//! 3. Out: [`Channel::claim`] reserves the next slot at the peer, the program fills
//!    [`Channel::memory`], [`Channel::commit`] sends it. In: [`Channel::take`] returns the next
//!    message in place; dropping it releases its slot. [`Channel::read`] and [`Channel::write`]
//!    move bytes between the shared memories.
//! 4. [`Channel::close`] releases everything.
//!
//! A program with several threads uses [`Parts`] instead of [`Channel`]: one thread sends through
//! [`Outbound`], one takes completions through [`Operations`], one takes messages from [`Inbound`].
//!
//! # Promises
//!
//! - Everything happens in calls of the program: no thread, no clock, no socket but in [`establish`], no allocation and
//!   no system call for a message.
//! - Messages arrive whole, in order and once, or the session ends with an [`EndError`] that every
//!   later call repeats. [`PeerFault`] names what a peer did wrong; it harms only its own session.
//! - A correct peer never gets an RNR NAK: receives are posted for everything that it can send.
//! - Objects are released in the order of their dependencies, whatever step fails ([`Held`]).
//!
//! The paper's modules are [`resources`] (resource management), [`card`] (communication establishment),
//! [`operations`] (RDMA operations), [`qp`] (QP management) and [`cleanup`].
//!
//! A message is a WRITE_WITH_IMM into a slot of the peer ([`Mode::WriteImm`]; `docs/concept/tunnel-modes.md` has the two
//! others). The immediate names the slot and carries
//! the number of the peer's messages released since the last one, so a conversation needs no other
//! traffic. An end with nothing to send posts a notice of its own: after a quarter of the slots, or at once
//! when it is idle and half of the slots are in use. `docs/concept/duplex.md` has the reasons.
#![forbid(unsafe_code)]

mod bell;
pub mod card;
mod channel;
pub mod cleanup;
mod end;
mod error;
pub mod establish;
pub mod geometry;
mod inbound;
mod mode;
pub mod operations;
mod outbound;
mod parts;
pub mod qp;
pub mod resources;
mod shape;

pub use card::Card;
pub use channel::{Channel, MessageClaim};
pub use cleanup::Held;
pub use end::{ClaimError, Counts, EndError, FirstError, PeerFault, RemoteMemory, Tag};
pub use error::{ChannelError, OperationError, StillUsed};
pub use inbound::{Arrival, Inbound, Message, Slots, Wake};
pub use mode::{Mode, UnknownMode};
pub use operations::{Event, Operations, Ticket};
pub use outbound::{Filled, Filler, Outbound};
pub use parts::Parts;
pub use resources::Resources;
pub use shape::{ChannelShape, MAX_BLOCKS};
