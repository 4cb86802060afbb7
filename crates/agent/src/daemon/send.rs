//! A request of a send queue, and the parts in which the device gets it.
use super::share::Buffer;
use crate::entry::{Data, MAX_SGES};
use crate::scheduler::Chunk;
use catchment_verbs::{Ah, Payload, RemoteAddr, SendOp, SendWr, Sge};
use std::sync::Arc;

/// A request of the send queue that is not served completely.
pub(super) struct Send {
    pub(super) seq: u64,
    pub(super) op: SendOp,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    pub(super) solicited: bool,
    pub(super) data: Data,
    pub(super) inline: Option<Buffer>,
    /// Of a datagram; its application may end it before the device has the request.
    pub(super) _ah: Option<Arc<dyn Ah>>,
    /// A part of it failed, and the application knows.
    pub(super) failed: bool,
}

impl Send {
    /// Returns its length, and whether it can be split.
    pub(super) fn shape(&self) -> (u64, bool) {
        (self.data.bytes(), splits(&self.op) && !self.data.is_inline())
    }

    /// Returns the request for a whole chunk or, of these elements, a part.
    #[inline]
    pub(super) fn request<'a>(
        &'a self,
        chunk: &Chunk,
        wr_id: u64,
        part: Option<&'a [Sge]>,
    ) -> SendWr<'a> {
        let payload = match (&self.data, &self.inline) {
            (Data::Inline(count), Some(bytes)) => Payload::Inline(&bytes[..usize::from(*count)]),
            (Data::Inline(_), None) => Payload::Inline(&[]),
            (Data::Elements(..), _) => Payload::Sges(part.unwrap_or(self.data.elements())),
        };
        SendWr {
            wr_id,
            op: part_of(self.op, chunk),
            payload,
            signaled: true,
            fence: self.fence && chunk.offset == 0,
            solicited: self.solicited && chunk.last,
        }
    }
}

fn moved(to: RemoteAddr, by: u64) -> RemoteAddr {
    RemoteAddr { addr: to.addr.wrapping_add(by), ..to }
}

/// Returns the operation for a chunk of a request.
pub(super) fn part_of(op: SendOp, chunk: &Chunk) -> SendOp {
    match op {
        SendOp::Write(to) => SendOp::Write(moved(to, chunk.offset)),
        SendOp::WriteImm(to, imm) if chunk.last => SendOp::WriteImm(moved(to, chunk.offset), imm),
        SendOp::WriteImm(to, _) => SendOp::Write(moved(to, chunk.offset)),
        SendOp::Read(from) => SendOp::Read(moved(from, chunk.offset)),
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::SendTo(_)
        | SendOp::SendImmTo(..)
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. } => op,
    }
}

/// Returns whether an operation can be done in several.
#[inline]
fn splits(op: &SendOp) -> bool {
    matches!(op, SendOp::Write(_) | SendOp::WriteImm(..) | SendOp::Read(_))
}

/// Returns the elements of a chunk that is a part of a request.
#[inline]
pub(super) fn part_of_elements(send: &Send, chunk: &Chunk) -> Option<([Sge; MAX_SGES], usize)> {
    let is_part = chunk.offset > 0 || !chunk.last;
    is_part.then(|| send.data.part(chunk.offset, chunk.bytes))
}
