//! Work completions: what became of a request.
use std::num::NonZeroU32;

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
    /// Bytes moved. For a receive: the length of the message, on UD with the
    /// [`crate::GRH_BYTES`] before it.
    pub bytes: u64,
    /// What a received message carried beside its bytes.
    pub extra: Extra,
    /// For a receive of a UD queue pair: the queue pair that sent the datagram, as it says. `None`
    /// otherwise, and for 0, which is no queue pair of a program.
    pub source_qpn: Option<NonZeroU32>,
}

impl Success {
    /// Of a request that brought nothing but its bytes.
    #[inline]
    pub fn plain(opcode: WcOpcode, bytes: u64) -> Success {
        Success {
            opcode,
            bytes,
            extra: Extra::Nothing,
            source_qpn: None,
        }
    }

    /// Immediate data of a received message, in host byte order.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        match self.extra {
            Extra::Imm(imm) => Some(imm),
            Extra::Nothing | Extra::Invalidated(_) => None,
        }
    }
}

/// What a received message carried beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Nothing; so for all sends.
    Nothing,
    /// Immediate data, in host byte order.
    Imm(u32),
    /// This rkey of the receiving side was invalidated: peers do not reach the region with it any
    /// more, from before this completion on.
    Invalidated(u32),
}

impl Extra {
    /// Of immediate data, where there is any.
    #[inline]
    pub fn of_imm(imm: Option<u32>) -> Extra {
        imm.map_or(Extra::Nothing, Extra::Imm)
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

// Pollers copy completions: what the rare services need must not make them longer.
const _: () = assert!(size_of::<Success>() == 24 && size_of::<Completion>() == 40);
