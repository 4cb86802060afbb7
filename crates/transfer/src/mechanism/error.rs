//! What can go wrong at an end of any mechanism.
use crate::{
    header::HeaderError,
    layout::LayoutError,
    paper::{PaperError, PaperMemoryError},
    receiver::{PeerMisbehaved, ReceiverError},
    sender::{Broken, CommitFailure, ReserveError, SenderError},
};
use catchment_verbs::{
    CqError, Failure, ModifyError, PostError, RemoteMapError, VerbsError, WcStatus, mem::MemError,
};

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

/// No block was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// No block is known to be free. Claim again later, or sleep on the end's watch.
    #[error("no free block")]
    WouldBlock,
    /// Bytes that a block of this mechanism cannot have.
    #[error("{asked} bytes do not fit a block, which takes {limit}{}", if *.exactly { " exactly" } else { "" })]
    Length {
        /// Bytes asked for.
        asked: u32,
        /// Bytes that fit.
        limit: u32,
        /// Fewer do not fit either.
        exactly: bool,
    },
    /// A stream that this mechanism cannot name.
    #[error("stream {stream}: there are streams 0 to {limit}, exclusively")]
    Stream {
        /// The stream.
        stream: u32,
        /// Streams there are.
        limit: u32,
    },
    /// The session is over.
    #[error("{0}")]
    End(#[from] EndError),
}

/// Why an end stopped working.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// A request failed.
    #[error("a request failed: {0}")]
    Completion(WcStatus),
    /// A request could not be posted.
    #[error("{0}")]
    Post(#[from] PostError),
    /// A completion queue overran.
    #[error("{0}")]
    Cq(#[from] CqError),
    /// A byte stream failed.
    #[error("the connection failed: {0}")]
    Socket(std::io::ErrorKind),
    /// The peer took its memory back, or is gone.
    #[error("the peer withdrew its memory or is gone")]
    PeerGone,
    /// The session was ended at this end.
    #[error("the session was ended at this end")]
    Closed,
    /// The peer did what no correct peer does.
    #[error("the peer misbehaves: {0}")]
    Peer(#[from] PeerFault),
    /// A packet number that no block can have. The session goes on.
    #[error("not sent: {0}")]
    Packet(HeaderError),
    /// A block was committed that is not the one claimed last. The session goes on.
    #[error("this claim was given up: another block was claimed after it")]
    StaleClaim,
}

/// What no correct peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// A block of the product's format is wrong.
    #[error("{0}")]
    Block(#[from] PeerMisbehaved),
    /// The header of a block is wrong.
    #[error("block {position}: {reason}")]
    Header {
        /// Where the block lies.
        position: u32,
        /// What is wrong.
        reason: HeaderError,
    },
    /// The bytes of a block are not those that its checksum is of.
    #[error("block {position}: checksum {computed:#010x}, the sender computed {announced:#010x}")]
    Checksum {
        /// Where the block lies.
        position: u32,
        /// What the sender computed.
        announced: u32,
        /// What this end computed.
        computed: u32,
    },
    /// A block in a slot that the sender did not get back.
    #[error("block {position} was written over one that was not given back")]
    Overwritten {
        /// Where the block lies.
        position: u32,
    },
    /// An immediate that does not name the next block.
    #[error("immediate {value:#x} does not name a block that can come now")]
    Immediate {
        /// The immediate.
        value: u32,
    },
    /// A message of another kind or length than this mechanism has.
    #[error("a message of {bytes} bytes that this mechanism does not have")]
    Message {
        /// Its length.
        bytes: u64,
    },
    /// A count of blocks given back that cannot be.
    #[error("{count} blocks came back, of {sent} sent; {known} had come back before")]
    Credit {
        /// What the receiver wrote.
        count: u64,
        /// What was known before.
        known: u64,
        /// Blocks sent.
        sent: u64,
    },
    /// An acknowledgement of another block than the oldest.
    #[error("block {position} was acknowledged, which is not the oldest one on its way")]
    Acknowledgement {
        /// The position that it names.
        position: u32,
    },
    /// A notice about an address that is no slot, or none that it can be about now.
    #[error("a notice about address {addr:#x}, which is no slot that it can be about now")]
    Address {
        /// The address.
        addr: u64,
    },
    /// A slot came back that was not away.
    #[error("slot {slot} came back, and no block was in it")]
    Released {
        /// The slot.
        slot: u32,
    },
}

impl From<Failure> for EndError {
    /// What is flushed failed because the queue pair did: by itself, a peer that is gone.
    fn from(failure: Failure) -> EndError {
        if failure.status == WcStatus::Flushed {
            return EndError::PeerGone;
        }
        EndError::Completion(failure.status)
    }
}

impl From<PeerFault> for ClaimError {
    fn from(fault: PeerFault) -> ClaimError {
        ClaimError::End(fault.into())
    }
}

impl From<Broken> for EndError {
    fn from(broken: Broken) -> EndError {
        match broken {
            Broken::Completion(status) => EndError::Completion(status),
            Broken::Post(error) => EndError::Post(error),
            Broken::Cq(error) => EndError::Cq(error),
            Broken::PeerGone => EndError::PeerGone,
        }
    }
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
        SetupError::Memory {
            what: error.what,
            source: error.source,
        }
    }
}

impl From<PeerMisbehaved> for EndError {
    fn from(fault: PeerMisbehaved) -> EndError {
        EndError::Peer(fault.into())
    }
}

impl From<ReserveError> for ClaimError {
    fn from(error: ReserveError) -> ClaimError {
        match error {
            // A share of the blocks is used up: they come back as the others do.
            ReserveError::WouldBlock | ReserveError::Quota { .. } => ClaimError::WouldBlock,
            ReserveError::TooLong { asked, limit } => ClaimError::Length {
                asked,
                limit,
                exactly: false,
            },
            ReserveError::Stream { stream, limit } => ClaimError::Stream { stream, limit },
            ReserveError::Broken(broken) => ClaimError::End(broken.into()),
        }
    }
}

impl From<CommitFailure> for EndError {
    fn from(failure: CommitFailure) -> EndError {
        match failure {
            CommitFailure::Broken(broken) => broken.into(),
            CommitFailure::Meta(reason) => EndError::Packet(reason),
        }
    }
}
