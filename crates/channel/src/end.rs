//! What every end of a connection that moves blocks has in common: tags, the peer's memory, counts
//! and errors.
use catchment_transfer::{HeaderError, PeerMisbehaved};
use catchment_verbs::{CqError, Failure, PostError, RemoteAddr, WcStatus};
use std::sync::OnceLock;

/// Which block it is, in its sender's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tag {
    /// Its stream or device.
    pub stream: u32,
    /// Its number within the stream.
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

impl RemoteMemory {
    /// Returns the address `offset` bytes into the memory.
    #[inline]
    pub fn at(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.addr + offset as u64, rkey: self.rkey }
    }
}

/// What an end has done so far. Requests and bytes on the wire are not counted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Blocks committed, or taken.
    pub blocks: u64,
    /// Payload bytes of them.
    pub payload_bytes: u64,
    /// Interactions that this end started, where requests of one call count once: a block with its
    /// announcement, a READ of status bytes, an acknowledgement, a credit, an address.
    pub interactions: u64,
    /// Claims refused because no block was known to be free.
    pub would_blocks: u64,
}

impl Counts {
    /// Counts a block of so many payload bytes.
    #[inline]
    pub fn add_block(&mut self, payload_bytes: u64) {
        self.blocks += 1;
        self.payload_bytes += payload_bytes;
    }
}

/// The first error of an end, which every later call returns.
#[derive(Debug, Default)]
pub struct FirstError(OnceLock<EndError>);

impl FirstError {
    /// Returns the error, if there was one.
    ///
    /// # Errors
    /// That one.
    #[inline]
    pub fn check(&self) -> Result<(), EndError> {
        match self.0.get() {
            None => Ok(()),
            Some(error) => Err(*error),
        }
    }

    /// Ends the session, and returns the error that came first.
    #[cold]
    pub fn set(&self, error: EndError) -> EndError {
        *self.0.get_or_init(|| error)
    }
}

/// No block was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// No block is known to be free. Claim again later, or sleep on the end's watch.
    #[error("no free block")]
    WouldBlock,
    /// A length that a block of this mechanism cannot have.
    #[error("{asked} bytes do not fit a block, which takes {limit}{}", if *.exactly { " exactly" } else { "" })]
    Length {
        /// Bytes asked for.
        asked: u32,
        /// Bytes that fit.
        limit: u32,
        /// A shorter block does not fit either.
        exactly: bool,
    },
    /// A stream that this mechanism cannot name.
    #[error("stream {stream} is out of range: streams are numbered below {limit}")]
    Stream {
        /// The stream.
        stream: u32,
        /// Number of streams.
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
    /// The peer deregistered its memory, or is gone.
    #[error("the peer withdrew its memory or is gone")]
    PeerGone,
    /// The session was ended at this end.
    #[error("the session was ended at this end")]
    Closed,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Peer(#[from] PeerFault),
    /// A packet number that no block can have. The session goes on.
    #[error("not sent: {0}")]
    Packet(HeaderError),
    /// The committed block is not the one claimed last. The session goes on.
    #[error("stale claim: another block was claimed after it")]
    StaleClaim,
}

/// How a peer broke the protocol.
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
    /// The bytes of a block do not match its checksum.
    #[error("block {position}: checksum {computed:#010x}, the sender computed {announced:#010x}")]
    Checksum {
        /// Where the block lies.
        position: u32,
        /// What the sender computed.
        announced: u32,
        /// What this end computed.
        computed: u32,
    },
    /// A block in a slot that was not released to the sender: where the block lies.
    #[error("block {0} was written over an unreleased one")]
    Overwritten(u32),
    /// An immediate that does not name the next block.
    #[error("immediate {0:#x} does not name the next block")]
    Immediate(u32),
    /// A message whose kind or length this mechanism does not use.
    #[error("unexpected message of {0} bytes")]
    Message(u64),
    /// A count of released blocks that is out of range.
    #[error("{count} blocks released, of {sent} sent; {known} were released before")]
    Credit {
        /// What the receiver wrote.
        count: u64,
        /// What was known before.
        known: u64,
        /// Blocks sent.
        sent: u64,
    },
    /// An acknowledgement of a block that is not the oldest: the position that it names.
    #[error("block {0} was acknowledged, which is not the oldest outstanding one")]
    Acknowledgement(u32),
    /// A notice about an address that is not a slot in the right state.
    #[error("a notice about address {0:#x}, which is not a slot in the right state")]
    Address(u64),
    /// A slot was released that held no block.
    #[error("slot {0} was released, and no block was in it")]
    Released(u32),
}

impl From<Failure> for EndError {
    /// Reports a flushed request as a peer that is gone: it failed because the queue pair did.
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
