//! What can go wrong before and after the work of a channel.
use super::card::CardError;
use crate::EndError;
use catchment_transfer::LayoutError;
use catchment_verbs::{ModifyError, VerbsError};

/// A channel cannot be made, connected or taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The sizes are not possible.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// More slots than an immediate can name.
    #[error("{0} blocks each way: at most {limit} have a number", limit = super::resources::MAX_BLOCKS)]
    Blocks(u32),
    /// The device refused an object.
    #[error("{what}: {source}")]
    Resource {
        /// Which object.
        what: &'static str,
        /// What the device said.
        source: VerbsError,
    },
    /// The queue pair could not change its state.
    #[error("{0}")]
    Qp(#[from] ModifyError),
    /// What the peer says about itself cannot be.
    #[error("{0}")]
    Card(#[from] CardError),
    /// A request or the session failed.
    #[error("{0}")]
    End(#[from] EndError),
    /// Something still uses what is to be taken down.
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
    #[error("here: bytes {offset}..+{bytes} of {available}")]
    Local {
        /// Where they begin.
        offset: usize,
        /// How many.
        bytes: u32,
        /// How many there are.
        available: usize,
    },
    /// Bytes outside of the peer's memory.
    #[error("at the peer: bytes {offset}..+{bytes} of {available}")]
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

/// Something else of the program still has an object. It lives until that one drops it.
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
