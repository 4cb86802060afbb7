//! Work requests: what an application asks a queue pair to do.
use crate::{Destination, Service, WcOpcode};

/// A scatter-gather element: a piece of local registered memory. In memory it is an `ibv_sge`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Address of the first byte, as `Mr::addr` counts.
    pub addr: u64,
    /// Bytes.
    pub bytes: u32,
    /// Key of the region.
    pub lkey: u32,
}

/// A place in the peer's registered memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Address of the first byte, as the peer's `Mr::addr` counts.
    pub addr: u64,
    /// Key of the region.
    pub rkey: u32,
}

/// The operation of a send request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// RDMA WRITE: local data to the peer's memory; the peer's program is not notified.
    Write(RemoteAddr),
    /// RDMA WRITE that also takes a receive of the peer and completes it with this number.
    WriteImm(RemoteAddr, u32),
    /// RDMA READ: the peer's memory to local memory.
    Read(RemoteAddr),
    /// A message into the peer's next receive.
    Send,
    /// A message with immediate data.
    SendImm(u32),
    /// A message that also invalidates this rkey of the peer (`Caps::send_invalidate`; RC). The
    /// peer must have registered the region with [`crate::Access::REMOTE_INVALIDATE`]; if not, this
    /// is a remote access error. Its receive reports the key
    /// ([`crate::Success::invalidated_rkey`]).
    SendInvalidate(u32),
    /// A datagram (UD).
    SendTo(Destination),
    /// A datagram with immediate data (UD).
    SendImmTo(Destination, u32),
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
    /// Returns the opcode of the operation's completion.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        match self {
            Self::Write(_) | Self::WriteImm(..) => WcOpcode::Write,
            Self::Read(_) => WcOpcode::Read,
            Self::Send
            | Self::SendImm(_)
            | Self::SendInvalidate(_)
            | Self::SendTo(_)
            | Self::SendImmTo(..) => WcOpcode::Send,
            Self::CompareSwap { .. } => WcOpcode::CompareSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
        }
    }

    /// Returns whether queue pairs of this service have the operation (IBTA 9.2, table 35).
    pub fn exists_on(&self, service: Service) -> bool {
        match self {
            Self::Write(_) | Self::WriteImm(..) | Self::Send | Self::SendImm(_) => {
                service != Service::Ud
            }
            Self::Read(_)
            | Self::SendInvalidate(_)
            | Self::CompareSwap { .. }
            | Self::FetchAdd { .. } => service == Service::Rc,
            Self::SendTo(_) | Self::SendImmTo(..) => service == Service::Ud,
        }
    }

    /// Returns whether the peer answers with data: READ, compare-and-swap, fetch-and-add.
    #[inline]
    pub fn is_read_or_atomic(&self) -> bool {
        self.is_read() || self.is_atomic()
    }

    /// Returns whether this is READ.
    #[inline]
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    /// Returns whether this is compare-and-swap or fetch-and-add.
    #[inline]
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns whether the remote address of an atomic is not a multiple of eight (IBTA 9.4.5.1).
    /// The responder refuses such a request.
    #[inline]
    pub fn is_misaligned_atomic(&self) -> bool {
        let (Self::CompareSwap { remote, .. } | Self::FetchAdd { remote, .. }) = self else {
            return false;
        };
        !remote.addr.is_multiple_of(8)
    }

    /// Returns the destination of a datagram.
    #[inline]
    pub fn destination(&self) -> Option<&Destination> {
        match self {
            Self::SendTo(to) | Self::SendImmTo(to, _) => Some(to),
            Self::Write(_)
            | Self::WriteImm(..)
            | Self::Read(_)
            | Self::Send
            | Self::SendImm(_)
            | Self::SendInvalidate(_)
            | Self::CompareSwap { .. }
            | Self::FetchAdd { .. } => None,
        }
    }
}

// Posting copies requests: what the rare services need must not make them longer.
const _: () = assert!(size_of::<SendOp>() == 40);

/// Where the bytes of a request come from, or go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Pieces of registered memory, in order.
    Sges(&'a [Sge]),
    /// Bytes copied while posting; the buffer is free when the call returns. Only for WRITE and
    /// SEND.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    /// Returns the length of the message in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.bytes)).sum(),
            Payload::Inline(data) => data.len() as u64,
        }
    }
}

/// A request for the send queue. A slice of them is what verbs call a linked list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// Returned in the completion; the provider does not read it.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// The bytes to do it with.
    pub payload: Payload<'a>,
    /// Generate a completion on success. A failure always generates one.
    pub signaled: bool,
    /// Wait for earlier READs and atomics first.
    pub fence: bool,
    /// Wake a peer that sleeps on its completion channel for solicited events only.
    pub solicited: bool,
}

impl<'a> SendWr<'a> {
    /// Creates a signaled request without fence.
    pub fn new(wr_id: u64, op: SendOp, payload: Payload<'a>) -> Self {
        SendWr { wr_id, op, payload, signaled: true, fence: false, solicited: false }
    }

    /// Suppresses the completion on success.
    pub fn unsignaled(self) -> Self {
        SendWr { signaled: false, ..self }
    }
}

/// A request for the receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Where a message goes, in order. May be empty for immediates without data. On UD the first
    /// [`crate::GRH_BYTES`] are for the network header.
    pub sges: &'a [Sge],
}
