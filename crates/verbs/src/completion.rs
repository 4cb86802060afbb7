//! Work completions: what became of a request.

/// One entry of a completion queue.
///
/// A failed completion has only the fields that `ibv_poll_cq(3)` guarantees: the others do not
/// exist in [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// Number of the local queue pair.
    pub qpn: u32,
    /// What became of the request.
    pub result: Result<Success, Failure>,
}

impl Completion {
    /// A placeholder to fill an array with before [`crate::Cq::poll`].
    pub const EMPTY: Completion = Completion {
        wr_id: 0,
        qpn: 0,
        result: Err(Failure {
            status: WcStatus::General,
            vendor_err: 0,
        }),
    };
}

/// What a request that succeeded did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The kind of the completed request.
    pub opcode: WcOpcode,
    /// Bytes moved. For a receive: the length of the message.
    pub bytes: u64,
    /// Immediate data of a received message, in host byte order.
    pub imm: Option<u32>,
}

/// The kind of a completed request (`ibv_wc_opcode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// SEND, with or without immediate data.
    Send,
    /// WRITE, with or without immediate data.
    Write,
    /// READ.
    Read,
    /// Compare-and-swap.
    CompareSwap,
    /// Fetch-and-add.
    FetchAdd,
    /// A receive that took a SEND.
    Recv,
    /// A receive that took the immediate data of a WRITE.
    RecvWriteImm,
}

/// Why a request failed. The other fields of a failed completion are not defined by verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub status: WcStatus,
    /// A number that only the provider's maker can read; 0 if there is none.
    pub vendor_err: u32,
}

/// The reason of a failed completion (`ibv_wc_status`, IBTA 10.10.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WcStatus {
    /// A message longer than the receive buffer, or than the provider allows.
    #[error("local length error: the message is longer than the buffer posted for it")]
    LocalLength,
    /// The queue pair is broken inside.
    #[error("local queue pair operation error")]
    LocalQpOperation,
    /// An lkey, its bounds or its rights do not fit the scatter-gather element.
    #[error("local protection error: lkey, bounds or rights of a scatter-gather element are wrong")]
    LocalProtection,
    /// The queue pair went to the error state before the request was done.
    #[error("flushed: the queue pair went to the error state before this request was done")]
    Flushed,
    /// The peer does not understand or allow the request.
    #[error("remote invalid request: the peer does not support the request on this queue pair")]
    RemoteInvalidRequest,
    /// An rkey, its bounds or its rights do not fit the request.
    #[error("remote access error: rkey, bounds or rights at the peer do not allow the request")]
    RemoteAccess,
    /// The peer failed to do the request.
    #[error("remote operation error: the peer could not complete the request")]
    RemoteOperation,
    /// The peer did not answer.
    #[error("transport retry exceeded: the peer does not answer")]
    TransportRetryExceeded,
    /// The peer had no receive posted for too long.
    #[error("RNR retry exceeded: the peer had no receive posted")]
    RnrRetryExceeded,
    /// Any other failure.
    #[error("general error")]
    General,
    /// A status that this crate does not know, as the device gave it.
    #[error("unknown completion status {0}")]
    Other(u32),
}
