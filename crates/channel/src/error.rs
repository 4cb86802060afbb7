//! What can go wrong while a channel is connected, used or closed.
use super::card::CardError;
use crate::{EndError, Mode};
use catchment_transfer::LayoutError;
use catchment_verbs::{ModifyError, VerbsError};

/// A channel cannot be made, connected or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The sizes are not possible.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// More slots than an immediate can name.
    #[error("{0} blocks exceed the limit of {limit}", limit = super::shape::MAX_BLOCKS)]
    Blocks(u32),
    /// The device does not keep what the mode needs.
    #[error(
        "mode write needs a device that promises the order of the bytes of a WRITE, which this one does \
         not: use write-imm or send"
    )]
    Order,
    /// Threads that share a channel's parts know one mode.
    #[error("mode {0} is for a channel that one thread drives")]
    Parts(Mode),
    /// The device refused an object.
    #[error("{what}: {source}")]
    Resource {
        /// Which object.
        what: &'static str,
        /// What the device said.
        source: VerbsError,
    },
    /// The queue pair refused a change of state.
    #[error("{0}")]
    Qp(#[from] ModifyError),
    /// The peer's card is wrong or does not fit.
    #[error("{0}")]
    Card(#[from] CardError),
    /// A request or the session failed.
    #[error("{0}")]
    End(#[from] EndError),
    /// Something still uses what is to be released.
    #[error("{0}")]
    StillUsed(#[from] StillUsed),
}

/// A READ or WRITE was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The queue is full: take completions, then try again.
    #[error("the send queue is full")]
    QueueFull,
    /// Bytes outside of the memory at this end.
    #[error("out of bounds at this end: bytes {offset}..+{bytes} of {available}")]
    Local {
        /// Where they begin.
        offset: usize,
        /// How many.
        bytes: u32,
        /// How many there are.
        available: usize,
    },
    /// Bytes outside of the peer's memory.
    #[error("out of bounds at the peer: bytes {offset}..+{bytes} of {available}")]
    Remote {
        /// Where they begin.
        offset: u64,
        /// How many.
        bytes: u64,
        /// How many the peer has.
        available: u64,
    },
    /// The session is over.
    #[error("{0}")]
    End(#[from] EndError),
}

/// Other parts of the program still hold objects, which live until they are dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("still in use: {}", list(.objects))]
pub struct StillUsed {
    /// What, and by how many.
    pub objects: Vec<(&'static str, usize)>,
}

fn list(objects: &[(&'static str, usize)]) -> String {
    let each: Vec<_> = objects.iter().map(|(what, users)| format!("{what} (by {users})")).collect();
    each.join(", ")
}
