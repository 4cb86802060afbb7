//! Work completions: what became of a request.

/// Which of the two queues of a queue pair a request was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Send queue.
    Send,
    /// Receive queue.
    Recv,
}

/// What became of a request. Requests of one queue complete in the order in which they were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// The queue it was posted to.
    pub queue: Queue,
    /// What became of it. A failure has nothing but its status, as with `ibv_poll_cq(3)`.
    pub result: Result<Success, WcStatus>,
}

/// What a request that succeeded did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Success {
    /// The kind of the completed request.
    pub opcode: WcOpcode,
    /// Bytes moved. For a receive: length of the message, on UD with the 40 bytes of the network
    /// header.
    pub bytes: u64,
    /// Immediate data of a received message, in host order.
    pub imm: Option<u32>,
    /// The key that the message invalidated.
    pub invalidated_rkey: Option<u32>,
    /// The sender set the solicited event bit.
    pub solicited: bool,
    /// Who sent the datagram (UD only).
    pub source: Option<Source>,
}

impl Success {
    /// A success of a send request.
    pub(crate) fn sent(opcode: WcOpcode, bytes: u64) -> Success {
        Success {
            opcode,
            bytes,
            imm: None,
            invalidated_rkey: None,
            solicited: false,
            source: None,
        }
    }
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The number that the driver gave with the packet ([`crate::Arrival::source`]).
    pub address: u64,
    /// Queue pair of the sender.
    pub qpn: u32,
}

/// The kind of a completed request (`ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// The reason of a failed completion (`ibv_wc_status`, IBTA volume 1, 10.10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WcStatus {
    /// A message longer than the receive posted for it.
    #[error("local length error: the message is longer than the receive posted for it")]
    LocalLength,
    /// The driver could not reach the memory of a scatter-gather element.
    #[error("local protection error: the memory of a scatter-gather element is not there")]
    LocalProtection,
    /// The queue pair went to the error state before the request was done.
    #[error("flushed: the queue pair went to the error state before this request was done")]
    Flushed,
    /// The peer answered what the standard does not allow.
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
}
