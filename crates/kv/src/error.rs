//! Why an operation, a client or a server failed.
use crate::layout::{KEY_BYTES_MAX, MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, VALUE_BYTES_MAX};
use catchment_session::io::{BindError, ConnectError};
use catchment_verbs::mem::MemError;
use catchment_verbs::{CqError, ModifyError, PostError, VerbsError, WcStatus};
use std::io;
use std::time::Duration;

/// An operation of a client, or its connection, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// A key of no length, or too long.
    #[error("a key of {0} bytes: 1 to {max} are possible", max = KEY_BYTES_MAX)]
    Key(usize),
    /// A value is too long.
    #[error("a value of {0} bytes: at most {max} are possible", max = VALUE_BYTES_MAX)]
    Value(usize),
    /// There is no memory for the value.
    #[error(
        "the store is full: no block of {block_bytes} bytes is left of its {memory_bytes} bytes; delete keys, or start \
         the server with a larger --memory (nothing is evicted)"
    )]
    Full {
        /// Bytes of the block that was needed.
        block_bytes: u64,
        /// Bytes of the store.
        memory_bytes: u64,
    },
    /// Memory waits for another client for too long.
    #[error(
        "no block of {block_bytes} bytes for {waited:?}: memory waits for a client that is silent; end it, or wait for its lease"
    )]
    Waiting {
        /// Bytes of the block that was needed.
        block_bytes: u64,
        /// How long was waited.
        waited: Duration,
    },
    /// The device cannot do what one-sided PUTs need.
    #[error(
        "over this device the server's processor and the device do not agree on compare-and-swap: use --sided two for PUT and DELETE"
    )]
    NoAtomics,
    /// What lies in memory is no item.
    #[error("the store is damaged at unit {at}: a client has written what is no item")]
    Damaged {
        /// The place, in units of 64 bytes.
        at: u32,
    },
    /// The key's word stays frozen, or the table does not grow.
    #[error(
        "the server does not move on to a larger table; is there memory for one? It has {memory_bytes} bytes"
    )]
    NoGrowth {
        /// Bytes of the store.
        memory_bytes: u64,
    },
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server has refused this client.
    #[error("the server refused: {reason}; {remedy}")]
    Refused {
        /// Why.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The connection ended, or the lease did.
    #[error("the server is lost: {0}")]
    Lost(String),
    /// A request failed.
    #[error(
        "a request failed: {0:?}; is the server gone, or was this client silent for longer than its lease?"
    )]
    Request(WcStatus),
    /// The device refuses.
    #[error("{what}: {source}")]
    Verbs {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: VerbsError,
    },
    /// The device refuses to connect.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The device refuses a request.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Completions were lost.
    #[error(transparent)]
    Cq(#[from] CqError),
    /// Memory cannot be reached.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The system refuses.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl KvError {
    pub(crate) fn verbs(what: &'static str) -> impl FnOnce(VerbsError) -> Self {
        move |source| Self::Verbs { what, source }
    }

    /// Why the connection ended, without saying that it did.
    pub(crate) fn reason(self) -> String {
        if let Self::Lost(reason) = self { reason } else { self.to_string() }
    }
}

/// A server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// So little memory has no room for a table.
    #[error(
        "{0} bytes of memory are too few: {least} at least, {most} at most",
        least = MEMORY_BYTES_MIN,
        most = MEMORY_BYTES_MAX
    )]
    Size(u64),
    /// The system has no such memory.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// This host has no identity.
    #[error("{0}")]
    Host(String),
    /// The system refuses.
    #[error("{0}")]
    Io(#[from] io::Error),
}
