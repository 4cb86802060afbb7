//! Why bytes are no packet.
use super::{DropReason, Opcode};
use thiserror::Error;

/// Why bytes are no packet that is spoken here. Such packets are dropped without an answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than its headers.
    #[error("the packet has {bytes} bytes; its headers need {needed}: it was cut or is no RoCEv2")]
    TooShort {
        /// Bytes that there are.
        bytes: usize,
        /// Bytes that the headers need.
        needed: usize,
    },
    /// Another version of the transport: the version seen.
    #[error("the packet has transport version {0}; only 0 is defined: it is no RoCEv2")]
    TransportVersion(u8),
    /// No opcode that is spoken here: the opcode seen.
    #[error("opcode {0:#04x} is not spoken here: only RC, UC, UD, CNP and our extension are")]
    UnknownOpcode(u8),
    /// A length that padding does not give: bytes from the BTH to the pad.
    #[error("{0} transport bytes are no multiple of 4: the peer pads wrongly")]
    Misaligned(usize),
    /// More pad than there is after the headers.
    #[error("{pad} pad bytes, but only {bytes} bytes after the headers: the peer pads wrongly")]
    PadTooLong {
        /// Pad bytes that the BTH says.
        pad: u8,
        /// Bytes after the headers.
        bytes: usize,
    },
    /// A payload where its opcode has none.
    #[error("{opcode:?} carries {bytes} bytes of payload, but has none by the standard")]
    UnexpectedPayload {
        /// The opcode.
        opcode: Opcode,
        /// Bytes after the headers.
        bytes: usize,
    },
}

impl DecodeError {
    /// Returns the counter for it.
    pub const fn reason(self) -> DropReason {
        match self {
            Self::TooShort { .. } => DropReason::TooShort,
            Self::TransportVersion(_) => DropReason::TransportVersion,
            Self::UnknownOpcode(_) => DropReason::UnknownOpcode,
            Self::Misaligned(_) | Self::PadTooLong { .. } => DropReason::Misaligned,
            Self::UnexpectedPayload { .. } => DropReason::UnexpectedPayload,
        }
    }
}
