//! Send requests in progress or waiting, and their progress.
use crate::connection::Connection;
use crate::payload::{Piece, Source};
use catchment_verbs::{SendOp, WcStatus};
use std::sync::Arc;
use std::time::Instant;

/// The bytes of a request that waits.
pub(crate) enum Kept {
    /// A copy of inline data.
    Inline(Box<[u8]>),
    /// Registered memory, kept mapped.
    Pieces(Vec<Piece>),
    /// The elements are wrong: the request fails when its turn comes.
    Wrong,
}

impl Kept {
    /// A copy that outlives the call.
    pub(crate) fn new(source: Source<'_>) -> Self {
        match source {
            Source::Inline(data) => Self::Inline(data.into()),
            Source::Pieces(pieces) => Self::Pieces(pieces.to_vec()),
        }
    }

    pub(crate) fn source(&self) -> Result<Source<'_>, WcStatus> {
        match self {
            Self::Inline(data) => Ok(Source::Inline(data)),
            Self::Pieces(pieces) => Ok(Source::Pieces(pieces)),
            Self::Wrong => Err(WcStatus::LocalProtection),
        }
    }
}

/// The progress of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The rate limit let it through.
    pub(crate) paid: bool,
    /// The message has its receive.
    pub(crate) begun: bool,
    /// Payload bytes put into the ring.
    pub(crate) sent: u64,
    /// Since when there is no receive, or no peer.
    pub(crate) since: Option<Instant>,
}

/// A request that could not be executed when it was posted.
pub(crate) struct Waiting {
    pub(crate) wr_id: u64,
    pub(crate) seq: u64,
    pub(crate) op: SendOp,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) kept: Kept,
    pub(crate) progress: Progress,
}

/// The outcome of an attempt to execute a request.
pub(crate) enum Outcome {
    /// It is done, or failed.
    Done(Result<u64, WcStatus>),
    /// It must wait.
    Wait,
    /// The peer must be queried for a key.
    Ask(Arc<Connection>, u32),
}

/// What `QpCore::send_waiting` needs to continue.
pub(crate) enum Step {
    /// Time, or the peer.
    Rest,
    /// An answer of the peer.
    Ask(Arc<Connection>, u32),
}

/// A request that is at the front of the queue.
pub(crate) struct Front<'a> {
    pub(crate) op: &'a SendOp,
    pub(crate) source: Source<'a>,
    pub(crate) solicited: bool,
}
