//! Transfer mechanisms over verbs: the block pool and the status-byte protocol.
//!
//! A collector owns a ring of slots and two arrays of status bytes; a source writes blocks into
//! the slots one-sidedly. The collector posts nothing and answers nothing: a byte that says
//! "free" is the only credit. `docs/spec/block.md` has the format byte by byte.
//!
//! - [`Sender`] and [`WriteBlock`]: claim a slot, fill it, commit it; by many threads at once.
//! - [`Receiver`] and [`ReceivedBlock`]: take blocks, give them back in any order.
//! - [`mechanism`]: one interface for this mechanism and for those it is compared with.
//! - [`order`]: puts the blocks of a stream together to frames, in packet order.
//! - [`paper`]: the mechanism as published, for experiments.
//! - [`window`], [`rendezvous`]: sliding windows and rendezvous, to compare with.
//! - [`mirror`]: how a status array is scanned.
//! - [`refill`]: when the status bytes are read.
//! - [`releases`]: when the sender is told that slots are free.
//! - [`duplex`]: messages both ways over one queue pair, READs and WRITEs of shared memory.
//! - [`trace`]: what an end really posts, counted from outside.
//! - [`census`]: which objects of a device live.
//! - [`slot`]: the protocol itself, pure, as the model checker runs it.
//!
//! Nothing here reads a clock, sleeps, or allocates for a block.
#![forbid(unsafe_code)]

pub mod census;
pub mod checksum;
pub mod commit;
mod counters;
pub mod duplex;
pub mod header;
pub mod layout;
pub mod mechanism;
mod memory;
pub mod mirror;
pub mod order;
pub mod paper;
pub mod receiver;
pub mod refill;
pub mod releases;
pub mod rendezvous;
pub mod sender;
pub mod slot;
pub mod status;
mod sync;
pub mod trace;
pub mod wait;
pub mod window;

pub use header::{BlockHeader, HeaderError};
pub use layout::{LayoutError, PaperLayout, RingLayout};
pub use receiver::{
    CrcMismatch, PeerMisbehaved, ReceivedBlock, Receiver, ReceiverError, ReceiverOptions,
    ReceiverStats,
};
pub use refill::Refill;
pub use sender::{
    BlockMeta, Broken, CommitError, CommitFailure, CopyMemory, QueueLimits, RemoteRing,
    ReserveError, RetainedBlock, Sender, SenderError, SenderOptions, SenderStats, WriteBlock,
};
pub use wait::{Napper, Naps, Step, WaitPolicy, Waiter};
