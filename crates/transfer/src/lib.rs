//! One-sided block transfer over verbs: the block format and the status-byte protocol.
//!
//! A collector owns a ring: slots for blocks, and two arrays of status bytes. A source writes blocks
//! into the slots with RDMA WRITEs, or straight into mapped memory. The collector posts nothing and
//! answers nothing: a status byte that says "free" is the only credit. `docs/spec/block.md` has the
//! format byte by byte.
//!
//! # Data in
//!
//! [`Sender::reserve`] claims a free slot, the program fills [`WriteBlock::memory`],
//! [`WriteBlock::commit`] seals and sends the block, from any number of threads at once. A sender may
//! have a [`Permit`], which is asked before every claim, and a [`PostingGate`], which gets sealed blocks. Nothing blocks: without a free slot the
//! caller gets [`ReserveError::WouldBlock`] and may sleep on [`Sender::free_watch`].
//!
//! # Data out
//!
//! [`Receiver::poll`] takes the next complete block as a [`ReceivedBlock`], which reads in place.
//! Dropping it, in any order and on any thread, releases the slot. [`order::InOrder`] puts the blocks
//! of a stream into packet order.
//!
//! # Promises
//!
//! - A block is taken only when all of its bytes have arrived, in whatever order, and by one thread
//!   only. A late or repeated status READ never frees a slot that is in use.
//! - A peer that breaks the protocol costs its own session and nothing else: [`PeerMisbehaved`] at
//!   the receiver, [`Broken`] at the sender, the same from then on.
//! - Blocks that the collector did not release when a session ends are kept
//!   ([`Sender::unreleased`]) and can be sent in the next one.
//! - Nothing here reads a clock, sleeps, allocates for a block, or knows a provider. Registered
//!   memory belongs to the caller; sender and receiver keep it alive while they use it.
//!
//! [`header`] and [`layout`] describe the format, [`refill`] decides when the sender reads status
//! bytes, and [`protocol`] is the slot protocol as the model checker runs it.
#![forbid(unsafe_code)]

mod checksum;
mod commit;
mod counters;
mod gate;
pub mod header;
pub mod inline;
#[cfg(test)]
mod inline_tests;
pub mod layout;
mod memory;
mod mirror;
pub mod order;
mod permit;
mod receiver;
pub mod refill;
mod releases;
mod sender;
mod slot;
mod status;
mod sync;

pub use catchment_verbs::wait::{Step, WaitPolicy, Waiter};
pub use checksum::crc32c_of;
pub use gate::{HeldBlock, PostingGate};
pub use header::{BlockHeader, HeaderError};
pub use layout::{LayoutError, RingLayout};
pub use permit::{Decision, Permit, PermitRequest};
pub use receiver::{
    CrcMismatch, PeerMisbehaved, ReceivedBlock, Receiver, ReceiverError, ReceiverOptions,
    ReceiverStats,
};
pub use refill::Refill;
pub use sender::{
    BlockMeta, Broken, CommitError, CommitFailure, CopyMemory, QueueLimits, RemoteRing,
    ReserveError, RetainedBlock, Sender, SenderError, SenderOptions, SenderStats, WriteBlock,
};

/// The slot protocol itself, pure over any memory: for the model checker, and for programs that measure
/// its parts. Others use [`Sender`] and [`Receiver`].
pub mod protocol {
    pub use crate::commit::{HEADER_WORDS, commit_word};
    pub use crate::mirror::ByteMirror;
    pub use crate::releases::Releases;
    pub use crate::slot::{
        ReceiverSlots, ReleaseStatus, SenderSlots, SlotMemory, Taken, hold, publish, release, seal,
    };
    pub use crate::status::{SlotState, full_byte, held_byte, released_byte};
    pub use catchment_verbs::bias::Threads;
}
