//! What can go wrong when an end is made.
use catchment_transfer::{LayoutError, ReceiverError, SenderError};
use catchment_verbs::mem::MemError;
use catchment_verbs::{ModifyError, PostError, RemoteMapError, VerbsError};

/// An end of a mechanism cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// No layout has this shape.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// The device refused.
    #[error("{0}")]
    Verbs(#[from] VerbsError),
    /// The queue pair could not be connected.
    #[error("{0}")]
    Connect(#[from] ModifyError),
    /// The first receives could not be posted.
    #[error("the first receives: {0}")]
    Receives(#[from] PostError),
    /// The peer's memory cannot be mapped.
    #[error("the peer's memory: {0}")]
    Map(#[from] RemoteMapError),
    /// A region is too short.
    #[error("{what} does not fit: {source}")]
    Memory {
        /// Its purpose.
        what: &'static str,
        /// How it does not fit.
        source: MemError,
    },
    /// A region is missing.
    #[error("the port has no memory for {what}: open it with the needs of this end")]
    NoMemory {
        /// Its purpose.
        what: &'static str,
    },
    /// The sender refused.
    #[error("{0}")]
    Sender(#[from] SenderError),
    /// The receiver refused.
    #[error("{0}")]
    Receiver(#[from] ReceiverError),
    /// The peer offers other memory than this mechanism and shape need.
    #[error(
        "the peer offers {given} bytes as {what}, {needed} are needed: both ends must have the \
         same mechanism and sizes"
    )]
    Offer {
        /// Purpose of the memory.
        what: &'static str,
        /// Bytes offered.
        given: u64,
        /// Bytes needed.
        needed: u64,
    },
}
