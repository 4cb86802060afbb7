//! What can go wrong when an end is made.
use crate::EndError;
use crate::paper::{PaperError, PaperMemoryError};
use catchment_transfer::{LayoutError, ReceiverError, SenderError};
use catchment_verbs::mem::MemError;
use catchment_verbs::{ModifyError, PostError, RemoteMapError, VerbsError};

/// An end cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The sizes are not possible.
    #[error("{0}")]
    Layout(#[from] LayoutError),
    /// The device refused an object.
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
    /// Registered memory is too small.
    #[error("{what} does not fit: {source}")]
    Memory {
        /// Which memory.
        what: &'static str,
        /// What does not fit.
        #[source]
        source: MemError,
    },
    /// The port was opened with the needs of something else.
    #[error("the port has no memory for {what}: open it with the needs of this end")]
    NoMemory {
        /// Which memory.
        what: &'static str,
    },
    /// The product's sender refused.
    #[error("{0}")]
    Sender(#[from] SenderError),
    /// The product's receiver refused.
    #[error("{0}")]
    Receiver(#[from] ReceiverError),
    /// The peer offers other memory than this mechanism and shape need.
    #[error(
        "the peer offers {given} bytes as {what}, {needed} are needed: both ends must have the \
         same mechanism and sizes"
    )]
    Offer {
        /// Which memory.
        what: &'static str,
        /// Bytes that the peer offers; 0 if it offers none.
        given: u64,
        /// Bytes that are needed.
        needed: u64,
    },
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
