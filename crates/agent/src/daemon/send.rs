//! A request of a send queue, and the parts in which the device gets it.
use super::share::Buffer;
use crate::entry::{Data, MAX_SGES};
use crate::scheduler::Chunk;
use catchment_verbs::{Ah, Payload, RemoteAddr, SendOp, SendWr, Sge, WcStatus};
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
    /// Returns its length, and whether it can be split: on a queue pair of its own a WRITE with immediate cannot, for its
    /// receiver is told the length of what brings the immediate.
    pub(super) fn shape(&self, shares: bool) -> (u64, bool) {
        let splits = match self.op {
            SendOp::WriteImm(..) => shares,
            SendOp::Write(_) | SendOp::Read(_) => true,
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::SendTo(_)
            | SendOp::SendImmTo(..)
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. } => false,
        };
        (self.data.bytes(), splits && !self.data.is_inline())
    }

    /// Returns as what it fails if the device refuses to take it: some look at an address before their peer does (IBTA 9.4.5.1).
    pub(super) fn refusal(&self) -> WcStatus {
        if let SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } = self.op
            && !remote.addr.is_multiple_of(8)
        {
            return WcStatus::RemoteInvalidRequest;
        }
        WcStatus::LocalQpOperation
    }

    /// Returns whether a queue pair of its own does all of the request with this chunk: its receiver is told of what brings the
    /// immediate. One that was begun in parts, while its connection shared, ends with all of it once more.
    #[inline]
    fn is_whole(&self, chunk: &Chunk) -> bool {
        chunk.last && matches!(self.op, SendOp::WriteImm(..))
    }

    /// Returns the elements of a chunk as a queue pair of its own does it, if they are not those of the request.
    #[inline]
    pub(super) fn own_elements(&self, chunk: &Chunk) -> Option<([Sge; MAX_SGES], usize)> {
        if self.is_whole(chunk) { None } else { part_of_elements(self, chunk) }
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
            // With the elements of `own_elements`.
            op: if self.is_whole(chunk) { self.op } else { part_of(self.op, chunk) },
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

/// Returns the elements of a chunk that is a part of a request.
#[inline]
pub(super) fn part_of_elements(send: &Send, chunk: &Chunk) -> Option<([Sge; MAX_SGES], usize)> {
    let is_part = chunk.offset > 0 || !chunk.last;
    is_part.then(|| send.data.part(chunk.offset, chunk.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Limits, Scheduler};

    /// A request that was begun in parts on shared queue pairs, and ends on its own: its receiver is told of all bytes.
    #[test]
    fn a_write_with_immediate_tells_of_all_its_bytes() {
        let mut elements = [Sge { addr: 0, bytes: 0, lkey: 0 }; MAX_SGES];
        elements[0] = Sge { addr: 1000, bytes: 10_000, lkey: 7 };
        let to = RemoteAddr { addr: 5000, rkey: 9 };
        let send = Send {
            seq: 0,
            op: SendOp::WriteImm(to, 3),
            signaled: true,
            fence: false,
            solicited: false,
            data: Data::Elements(elements, 1),
            inline: None,
            _ah: None,
            failed: false,
        };
        assert_eq!((send.shape(true), send.shape(false)), ((10_000, true), (10_000, false)));
        let limits = Limits { chunk_bytes: 4096, window_bytes: 8192, request_bytes: 64 };
        let mut scheduler = Scheduler::new(limits);
        let application = scheduler.add_application();
        let connection = scheduler.add_connection(application, 1);
        let posted = |offset, bytes, last| {
            let chunk = Chunk { connection, offset, bytes, last };
            let part = send.own_elements(&chunk);
            let part = part.as_ref().map(|(sges, count)| &sges[..*count]);
            let request = send.request(&chunk, 1, part);
            let Payload::Sges(sges) = request.payload else { panic!("{request:?}") };
            (request.op, sges[0].addr, sges[0].bytes)
        };
        assert_eq!(posted(0, 4096, false), (SendOp::Write(to), 1000, 4096));
        assert_eq!(posted(4096, 5904, true), (send.op, 1000, 10_000));
        assert_eq!(posted(0, 10_000, true), (send.op, 1000, 10_000));
    }
}
