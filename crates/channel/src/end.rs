//! What every end of a connection that moves blocks has in common: what a block says about itself,
//! where the peer's memory is, what was done, and what can go wrong.
use catchment_transfer::{HeaderError, PeerMisbehaved};
use catchment_verbs::{CqError, Failure, PostError, WcStatus};

/// What a block says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tag {
    /// The stream or device that it is of.
    pub stream: u32,
    /// Its number there.
    pub packet: u64,
}

/// One piece of the peer's registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address of its first byte there.
    pub addr: u64,
    /// Its key.
    pub rkey: u32,
    /// Its length.
    pub bytes: u64,
}

/// What an end has done so far. Requests and bytes on the wire are not counted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Blocks committed, or taken.
    pub blocks: u64,
    /// Payload bytes of them.
    pub payload_bytes: u64,
    /// What this end had to say or to ask, apart from what goes in the same call: a block with what
    /// announces it, a READ of status bytes, an acknowledgement, a credit, an address.
    pub interactions: u64,
    /// Claims refused because no block was known to be free.
    pub would_blocks: u64,
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
    /// A block in a slot that the sender did not get back: where the block lies.
    #[error("block {0} was written over one that was not given back")]
    Overwritten(u32),
    /// An immediate that does not name the next block.
    #[error("immediate {0:#x} does not name a block that can come now")]
    Immediate(u32),
    /// A message of another kind or length than this mechanism has.
    #[error("a message of {0} bytes that this mechanism does not have")]
    Message(u64),
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
    /// An acknowledgement of another block than the oldest: the position that it names.
    #[error("block {0} was acknowledged, which is not the oldest one on its way")]
    Acknowledgement(u32),
    /// A notice about an address that is no slot, or none that it can be about now.
    #[error("a notice about address {0:#x}, which is no slot that it can be about now")]
    Address(u64),
    /// A slot came back that was not away.
    #[error("slot {0} came back, and no block was in it")]
    Released(u32),
}

impl From<Failure> for EndError {
    /// Takes a flushed request for a peer that is gone: it failed because the queue pair did.
    fn from(failure: Failure) -> Self {
        if failure.status == WcStatus::Flushed {
            return Self::PeerGone;
        }
        Self::Completion(failure.status)
    }
}

impl From<PeerFault> for ClaimError {
    fn from(fault: PeerFault) -> Self {
        Self::End(fault.into())
    }
}
