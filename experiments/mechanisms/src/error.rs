//! What can go wrong when an end is made.
use crate::EndError;
use crate::paper::{PaperError, PaperMemoryError};
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
    Memory {
        what: &'static str,
        #[source]
        source: MemError,
    },
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

impl From<PaperError> for EndError {
    fn from(error: PaperError) -> EndError {
        match error {
            PaperError::Completion(status) => EndError::Completion(status),
            PaperError::Post(error) => EndError::Post(error),
            PaperError::Cq(error) => EndError::Cq(error),
        }
    }
}

impl From<PaperMemoryError> for SetupError {
    fn from(error: PaperMemoryError) -> SetupError {
        SetupError::Memory { what: error.what, source: error.source }
    }
}
