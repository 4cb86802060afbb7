//! Errors of a sender.
use crate::header::HeaderError;
use catchment_verbs::mem::MemError;
use catchment_verbs::{CqError, PostError, RemoteMapError, WcStatus};

/// A sender cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// Registered memory is too small for the ring.
    #[error("{what} does not fit the ring: {source}")]
    Memory {
        /// Which memory.
        what: &'static str,
        /// What does not fit.
        source: MemError,
    },
    /// The peer's ring cannot be mapped or watched.
    #[error("the collector's ring: {0}")]
    Remote(#[from] RemoteMapError),
    /// The queues cannot hold one block.
    #[error("{what} = {given} is too small, the mechanism needs {needed}")]
    Queue {
        /// The queue attribute.
        what: &'static str,
        /// Its value.
        given: u32,
        /// The smallest that works.
        needed: u32,
    },
}

/// Why a session is over for the sender. Unreleased blocks can be sent again in another one
/// ([`crate::Sender::unreleased`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A request failed.
    #[error("a request failed: {0}")]
    Completion(WcStatus),
    /// A request could not be posted.
    #[error("{0}")]
    Post(PostError),
    /// The completion queue overran.
    #[error("{0}")]
    Cq(CqError),
    /// The collector deregistered its memory, or is gone.
    #[error("the collector withdrew the ring or is gone")]
    PeerGone,
}

/// No block was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// No slot is known to be free. Try again later, or sleep on
    /// [`crate::Sender::free_watch`].
    #[error("no free block")]
    WouldBlock,
    /// The stream has used up its quota of outstanding blocks; others can go on.
    #[error("stream {stream} has {quota} blocks outstanding, its quota")]
    Quota {
        /// The stream.
        stream: u32,
        /// Blocks it may have outstanding.
        quota: u32,
    },
    /// The permit pauses the stream ([`crate::Permit`]). Try again later, or sleep on
    /// [`crate::Sender::free_watch`]: [`crate::Sender::wake`] rings it.
    #[error("sending is paused")]
    Paused,
    /// The permit refuses the stream for good, with its reason.
    #[error("sending is refused: {0}")]
    Refused(&'static str),
    /// More bytes than a block holds: split the frame.
    #[error("{asked} bytes do not fit a block, which has room for {limit}")]
    TooLong {
        /// Bytes asked for.
        asked: u32,
        /// Bytes that fit.
        limit: u32,
    },
    /// A stream number beyond [`crate::SenderOptions::max_streams`].
    #[error("stream {stream} is out of range: this sender's streams are numbered below {limit}")]
    Stream {
        /// The stream.
        stream: u32,
        /// Number of streams.
        limit: u32,
    },
    /// The session is over.
    #[error("the session is over: {0}")]
    Broken(#[from] Broken),
}

/// Why a block was not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitFailure {
    /// The metadata contradict each other.
    #[error("{0}")]
    Meta(#[from] HeaderError),
    /// The session is over. The bytes are still in the block.
    #[error("the session is over: {0}")]
    Broken(#[from] Broken),
}
