//! Work completions: the outcome of a work request.

/// One entry of a completion queue.
///
/// A failed completion has only the fields that `ibv_poll_cq(3)` guarantees: [`Failure`] lacks the
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// Number of the local queue pair.
    pub qpn: u32,
    /// The outcome of the request.
    pub result: Result<Success, Failure>,
}

impl Completion {
    /// Returns a placeholder to fill an array with before `Cq::poll`.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        qpn: 0,
        result: Err(Failure { status: WcStatus::General, vendor_err: 0 }),
    };
}

/// What a successful request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The kind of the completed request.
    pub opcode: WcOpcode,
    /// Bytes moved. For a receive: the length of the message, on UD with the
    /// [`crate::GRH_BYTES`] before it.
    pub bytes: u64,
    /// Immediate data of a received message, in host byte order.
    pub imm: Option<u32>,
    /// What `number` is.
    rare: Rare,
    number: u32,
}

/// What only a few receives have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rare {
    Nothing,
    InvalidatedRkey,
    SourceQpn,
}

impl Success {
    /// Creates a success without immediate data, invalidated key or source.
    #[inline]
    pub fn plain(opcode: WcOpcode, bytes: u64) -> Self {
        Self { opcode, bytes, imm: None, rare: Rare::Nothing, number: 0 }
    }

    /// Adds immediate data, if there is any.
    #[inline]
    #[must_use]
    pub fn with_imm(self, imm: Option<u32>) -> Self {
        Self { imm, ..self }
    }

    /// Adds the rkey that the message invalidated.
    pub fn invalidating(self, rkey: u32) -> Self {
        Self { rare: Rare::InvalidatedRkey, number: rkey, ..self }
    }

    /// Adds the queue pair that sent the datagram.
    pub fn from_qpn(self, qpn: u32) -> Self {
        Self { rare: Rare::SourceQpn, number: qpn, ..self }
    }

    /// Returns the rkey of the receiving side that the received message invalidated. No peer can
    /// use it from the moment this completion exists.
    pub fn invalidated_rkey(&self) -> Option<u32> {
        (self.rare == Rare::InvalidatedRkey).then_some(self.number)
    }

    /// Returns the number of the queue pair that claims to have sent the received datagram.
    pub fn source_qpn(&self) -> Option<u32> {
        (self.rare == Rare::SourceQpn).then_some(self.number)
    }
}

/// The kind of a completed request (`ibv_wc_opcode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// SEND of any kind.
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
    /// Vendor-specific error code; 0 if there is none.
    pub vendor_err: u32,
}

impl From<WcStatus> for Failure {
    fn from(status: WcStatus) -> Self {
        Self { status, vendor_err: 0 }
    }
}

/// Reason of a failed completion (`ibv_wc_status`, IBTA 10.10.3).
///
/// Statuses that this list lacks are [`WcStatus::Other`], so a match can be exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WcStatus {
    /// A message longer than the receive buffer, or than the provider allows.
    #[error("local length error: the message is longer than the buffer posted for it")]
    LocalLength,
    /// The queue pair has an internal error.
    #[error("local queue pair operation error")]
    LocalQpOperation,
    /// An lkey, its bounds or its rights do not fit the scatter-gather element.
    #[error("local protection error: lkey, bounds or rights of a scatter-gather element are wrong")]
    LocalProtection,
    /// The queue pair went to the error state before the request was done.
    #[error("flushed: the queue pair went to the error state before this request was done")]
    Flushed,
    /// The peer answered with a packet that the standard does not allow.
    #[error("bad response: the peer answered with a packet that does not fit the request")]
    BadResponse,
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
    /// A status that this crate does not know, as the device reported it.
    #[error("unknown completion status {0}")]
    Other(u32),
}

impl WcStatus {
    /// Returns its name: short, and the same in every version.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LocalLength => "local-length",
            Self::LocalQpOperation => "local-qp-operation",
            Self::LocalProtection => "local-protection",
            Self::Flushed => "flushed",
            Self::BadResponse => "bad-response",
            Self::RemoteInvalidRequest => "remote-invalid-request",
            Self::RemoteAccess => "remote-access",
            Self::RemoteOperation => "remote-operation",
            Self::TransportRetryExceeded => "transport-retry-exceeded",
            Self::RnrRetryExceeded => "rnr-retry-exceeded",
            Self::General => "general",
            Self::Other(_) => "other",
        }
    }
}

// Pollers copy completions: what the rare services need must not make them longer.
const _: () = assert!(size_of::<Success>() == 24 && size_of::<Completion>() == 40);
