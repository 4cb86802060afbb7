//! Work requests: what a program asks a queue pair to do. The shape is that of `ibv_send_wr`.

/// A scatter-gather element: a piece of local registered memory.
///
/// The driver checks key and bounds before it posts, and keeps the memory registered until the
/// request has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub bytes: u32,
    /// Key of the region.
    pub lkey: u32,
}

/// A place in the peer's registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Address of the first byte.
    pub addr: u64,
    /// Key of the region.
    pub rkey: u32,
}

/// Where a datagram goes (UD only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// A number the driver gives and gets back in [`crate::TransmitBatch::destination`]: its
    /// address handle.
    pub address: u64,
    /// Queue pair of the peer.
    pub qpn: u32,
    /// Q_Key of the peer.
    pub qkey: u32,
}

/// The operation of a send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// RDMA WRITE: local data to the peer's memory; the peer's program sees nothing.
    Write(RemoteAddr),
    /// RDMA WRITE that also takes a receive of the peer and completes it with this number. The
    /// number is in host order; on the wire its most significant byte comes first.
    WriteImm(RemoteAddr, u32),
    /// RDMA READ: the peer's memory to local memory.
    Read(RemoteAddr),
    /// A message into the peer's next receive.
    Send,
    /// A message with immediate data.
    SendImm(u32),
    /// A message that also invalidates this key of the peer.
    SendInvalidate(u32),
    /// If the eight bytes at the address equal `compare`, they become `swap`. Their value before
    /// goes to local memory.
    CompareSwap {
        /// Eight-byte aligned.
        remote: RemoteAddr,
        /// Expected value, host byte order.
        compare: u64,
        /// New value, host byte order.
        swap: u64,
    },
    /// Adds to the eight bytes at the address. Their value before goes to local memory.
    FetchAdd {
        /// Eight-byte aligned.
        remote: RemoteAddr,
        /// Summand, host byte order; wraps.
        add: u64,
    },
}

impl SendOp {
    /// Whether the peer answers with data: READ, compare-and-swap, fetch-and-add.
    #[must_use]
    pub fn is_read_or_atomic(&self) -> bool {
        self.is_read() || self.is_atomic()
    }

    /// Whether this is READ.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self, SendOp::Read(_))
    }

    /// Whether this is compare-and-swap or fetch-and-add.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        matches!(self, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }
}

/// Where the bytes of a request come from, or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Pieces of registered memory, in order.
    Sges(&'a [Sge]),
    /// Bytes copied while posting; the buffer is free when the call returns. Only for WRITE and
    /// SEND.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    /// Length of the message in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.bytes)).sum(),
            Payload::Inline(data) => data.len() as u64,
        }
    }
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// Comes back in the completion; nothing here reads it.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// With which bytes. For READ and atomics: where the result goes.
    pub payload: Payload<'a>,
    /// Make a completion when it succeeds. A failure always makes one.
    pub signaled: bool,
    /// Wait for earlier READs and atomics first.
    pub fence: bool,
    /// Wake a peer that waits for solicited events only.
    pub solicited: bool,
    /// Whom to send to: needed on UD, not read on RC and UC.
    pub destination: Option<Destination>,
}

impl<'a> SendWr<'a> {
    /// A signaled request.
    #[must_use]
    pub fn new(wr_id: u64, op: SendOp, payload: Payload<'a>) -> SendWr<'a> {
        SendWr {
            wr_id,
            op,
            payload,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        }
    }

    /// The same request without a completion on success.
    #[must_use]
    pub fn unsignaled(self) -> SendWr<'a> {
        SendWr {
            signaled: false,
            ..self
        }
    }
}

/// A request for the receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where a message goes, in order. May be empty for immediates without data. On UD the first
    /// 40 bytes are for the network header of the datagram ([`crate::GRH_BYTES`]).
    pub sges: &'a [Sge],
}
