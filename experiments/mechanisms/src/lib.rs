//! The mechanisms that the product's status bytes are compared with, behind the interface of
//! [`catchment_perf::blocks`]: [`paper`] is the status-byte transfer as published; [`window`] and
//! [`rendezvous`] move blocks over verbs; [`tcp`] is a byte stream. [`Protocol`] lists those over verbs by
//! name, the product's own among them.
//!
//! In: a connected [`Port`], blocks that a program claims and fills. Out: blocks taken at the other end, and
//! [`Counts`]. Each keeps the promises of [`Mechanism`], as far as its [`Features`] say.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "not published: what a name says needs no second line")]

mod catalog;
pub mod paper;
pub mod rendezvous;
mod send_queue;
mod shared;
mod slots;
pub mod tcp;
pub mod window;

pub use catalog::{Protocol, Visit};
pub use catchment_channel::{ClaimError, Counts, EndError, PeerFault, RemoteMemory, Tag};
pub use catchment_perf::blocks::{
    CopyMode, EndNeeds, Features, Helper, Mechanism, MemoryNeed, Offer, Port, QueueNeeds,
    ReceiveEnd, SendEnd, SetupError, Shape, StatusByte, StatusByteReceiver, StatusByteSender,
    TakenBlock,
};
pub(crate) use send_queue::SendQueue;
pub(crate) use shared::{FirstError, InTurn};
pub use slots::{SlotClaim, SlotSender, Slots};

use catchment_probe::trace::Trace;
use std::sync::Arc;

/// Counts from now on what a port posts, and keeps the first `keep` requests.
#[must_use]
pub fn traced(port: Port, keep: usize) -> (Port, Arc<Trace>) {
    let (qp, trace) = Trace::of(port.qp, keep);
    (Port { qp, ..port }, trace)
}
