//! A duplex channel: messages both ways at once over one queue pair, and READs and WRITEs of memory
//! that both ends share.
//!
//! The parts are those of a client of the beam-diagnostics paper:
//!
//! | module of the paper | here |
//! |---|---|
//! | resource management | [`resources`] |
//! | communication establishment | [`card`]: what the ends tell each other; how they do is not this crate's matter |
//! | RDMA operations | [`operations`], and messages on top of them: [`channel`] |
//! | queue pair management | [`qp`] |
//! | cleanup | [`cleanup`] |
//!
//! A message is written with an immediate into a slot of the peer. The immediate names the slot, and
//! says how many of the peer's own messages were given back since the last one: with answers there
//! is no other traffic. Who has nothing to send says it in a message of its own, after a quarter of
//! the slots or when there is nothing else to do. There are always receives for all that a correct
//! peer can send: it never meets RNR.
//!
//! Everything happens in calls of the program; nothing here has a thread or a socket.
pub mod card;
pub mod channel;
pub mod cleanup;
mod error;
mod inbound;
pub mod operations;
mod outbound;
pub mod qp;
pub mod resources;

pub use card::Card;
pub use channel::{Channel, DuplexClaim, Foundation, Halves, Parts};
pub use error::{DuplexError, OperationError};
pub use inbound::{Arrival, DuplexBlock, Inbound, Slots, Wake};
pub use operations::{Event, Operations, Ticket};
pub use outbound::{Credit, Filled, Filler, Outbound};
pub use resources::{DuplexShape, Resources};
