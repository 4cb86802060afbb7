//! Requests in the fabric.
use super::memory::Piece;
use super::times::{OpTime, Times};
use catchment_verbs::{SendOp, Success, WcStatus};
use std::time::Duration;

pub(super) struct Request {
    pub(super) seq: u64,
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) data: Data,
    pub(super) bytes: u64,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    /// The time of the first request of its call; `None` for the first itself.
    pub(super) behind: Option<OpTime>,
}

pub(super) enum Data {
    Inline(Vec<u8>),
    Pieces(Vec<Piece>),
    /// A key, its bounds or its rights are invalid.
    Forbidden,
}

pub(super) struct Flight {
    pub(super) request: Request,
    /// From the effect to the completion.
    pub(super) returns: Duration,
    /// The bytes that a READ or an atomic fetched.
    pub(super) fetched: Option<Vec<u8>>,
    pub(super) done: Option<Result<(), WcStatus>>,
}

pub(super) struct Receive {
    pub(super) seq: u64,
    pub(super) wr_id: u64,
    /// `None` if a key, its bounds or its rights are invalid.
    pub(super) pieces: Option<Vec<Piece>>,
}

impl Receive {
    pub(super) fn room(&self) -> Option<u64> {
        Some(self.pieces.as_ref()?.iter().map(|piece| piece.bytes() as u64).sum())
    }
}

impl Request {
    pub(super) fn times(&self, times: &Times) -> (OpTime, Duration) {
        let own = time_of(times, self.op, matches!(self.data, Data::Inline(_)));
        match self.behind {
            None => (own, own.pipe(self.bytes)),
            // It makes its own round trip.
            Some(_) if fetches(self.op) => (own, times.linked + own.per_byte(self.bytes)),
            Some(first) => (first, times.linked + own.per_byte(self.bytes)),
        }
    }

    pub(super) fn success(&self) -> Success {
        Success::plain(self.op.opcode(), self.bytes)
    }
}

pub(super) fn time_of(times: &Times, op: SendOp, inline: bool) -> OpTime {
    match op {
        SendOp::Write(_) if inline => times.write_inline,
        SendOp::Write(_)
        | SendOp::WriteImm(..)
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. } => times.write,
        SendOp::Read(_) => times.read,
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..) => times.send,
    }
}

/// Returns whether the operation fetches bytes.
pub(super) fn fetches(op: SendOp) -> bool {
    match op {
        SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => true,
        SendOp::Write(_)
        | SendOp::WriteImm(..)
        | SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..) => false,
    }
}
