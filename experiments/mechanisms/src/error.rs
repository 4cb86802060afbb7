//! What can go wrong when an end is made.
use catchment_transfer::{LayoutError, ReceiverError, SenderError};
use catchment_verbs::mem::MemError;
use catchment_verbs::{ModifyError, PostError, RemoteMapError, VerbsError};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    #[error("{0}")]
    Layout(#[from] LayoutError),
    #[error("{0}")]
    Verbs(#[from] VerbsError),
    #[error("{0}")]
    Connect(#[from] ModifyError),
    #[error("the first receives: {0}")]
    Receives(#[from] PostError),
    #[error("the peer's memory: {0}")]
    Map(#[from] RemoteMapError),
    #[error("{what} does not fit: {source}")]
    Memory { what: &'static str, source: MemError },
    #[error("the port has no memory for {what}: open it with the needs of this end")]
    NoMemory { what: &'static str },
    #[error("{0}")]
    Sender(#[from] SenderError),
    #[error("{0}")]
    Receiver(#[from] ReceiverError),
    /// The peer offers other memory than this mechanism and shape need.
    #[error(
        "the peer offers {given} bytes as {what}, {needed} are needed: both ends must have the \
         same mechanism and sizes"
    )]
    Offer { what: &'static str, given: u64, needed: u64 },
}
