//! Errors of decoding packets.
use super::{DropReason, Opcode};
use thiserror::Error;

/// Why bytes are not a packet of a supported format. Such packets are dropped without an answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than its headers.
    #[error(
        "the packet has {bytes} bytes; its headers need {needed}: it was truncated or is not RoCEv2"
    )]
    TooShort {
        /// Bytes that there are.
        bytes: usize,
        /// Bytes that the headers need.
        needed: usize,
    },
    /// Another version of the transport: the version seen.
    #[error("the packet has transport version {0}; only 0 is defined: it is not RoCEv2")]
    TransportVersion(u8),
    /// An unsupported opcode: the opcode seen.
    #[error("opcode {0:#04x} is not supported: only RC, UC, UD, CNP and our extension are")]
    UnknownOpcode(u8),
    /// Not padded to a multiple of 4: bytes from the BTH to the pad.
    #[error("{0} transport bytes are not a multiple of 4: the peer pads wrongly")]
    Misaligned(usize),
    /// More pad than bytes after the headers.
    #[error("{pad} pad bytes, but only {bytes} bytes after the headers: the peer pads wrongly")]
    PadTooLong {
        /// Pad count of the BTH.
        pad: u8,
        /// Bytes after the headers.
        bytes: usize,
    },
    /// A payload with an opcode that has none.
    #[error("{opcode:?} has {bytes} bytes of payload, but the standard allows none")]
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
