//! What a scheduler is asked with, and answers.

/// An application of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId(pub(super) usize);

impl ApplicationId {
    /// Returns its number; numbers of removed applications are given out again.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// A connection of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(super) usize);

impl ConnectionId {
    /// Returns its number; numbers of removed connections are given out again.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// What turns, costs and the device's hands are measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest piece of a request that is served at once while somebody else is served, in bytes.
    pub chunk_bytes: u32,
    /// What all applications together have in the device's hands, about: the cost of it, in bytes.
    pub window_bytes: u64,
    /// What a request costs at least, in bytes: as many as the device moves in the time that it takes for the shortest
    /// request. [`LEAST_COST_BYTES`](super::LEAST_COST_BYTES) if it is less.
    pub request_bytes: u32,
}

/// What to send now: a part of the oldest request of a connection that is not served completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The connection.
    pub connection: ConnectionId,
    /// Where the chunk begins in the request, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The request ends here.
    pub last: bool,
}

/// What an application has been served, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Chunks.
    pub chunks: u64,
    /// Bytes, of at least [`LEAST_COST_BYTES`](super::LEAST_COST_BYTES) a chunk.
    pub bytes: u64,
    /// What they cost, in bytes: shares and rates are of these.
    pub cost_bytes: u64,
    /// How often nothing was left to serve. While it stays the same, the application waited all the time.
    pub emptied: u64,
    /// Time in which it had requests and its rate let none of them go, in nanoseconds.
    pub held_ns: u64,
}
