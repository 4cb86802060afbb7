//! Executing requests at the peer.
use super::memory::{Piece, gather, scatter};
use super::world::World;
use catchment_verbs::{Access, RemoteAddr, SendOp, Success, WcOpcode, WcStatus};
use std::time::Duration;

/// A request at the peer.
pub(super) struct Message {
    pub(super) op: SendOp,
    pub(super) bytes: u64,
    pub(super) solicited: bool,
    /// Empty for READs and atomics.
    pub(super) data: Vec<u8>,
}

/// What became of a request at the peer.
pub(super) enum Taken {
    Done(Option<Vec<u8>>),
    /// No receive is posted yet.
    NotReady(Duration),
    /// The peer does not answer.
    Silent,
    /// Refused, with this status for the requester.
    Refused(WcStatus),
}

impl World {
    pub(super) fn execute(&mut self, responder: u32, message: &Message) -> Taken {
        let data = &message.data;
        match message.op {
            SendOp::Write(at) => self.write_at(responder, at, data),
            SendOp::Read(at) => self.fetch_at(responder, at, message.bytes),
            SendOp::WriteImm(at, _) => {
                let qp = self.qp(responder);
                if qp.recvs.is_empty() {
                    return Taken::NotReady(qp.min_rnr_timer());
                }
                match self.write_at(responder, at, data) {
                    Taken::Done(_) => self.deliver(responder, message, None),
                    refused @ (Taken::NotReady(_) | Taken::Silent | Taken::Refused(_)) => refused,
                }
            }
            // There are no datagrams: UD is not offered.
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::SendTo(_)
            | SendOp::SendImmTo(..) => self.deliver(responder, message, Some(data)),
            SendOp::CompareSwap { remote, compare, swap } => {
                self.change_at(responder, remote, |old| if old == compare { swap } else { old })
            }
            SendOp::FetchAdd { remote, add } => {
                self.change_at(responder, remote, |old| old.wrapping_add(add))
            }
        }
    }

    /// Returns the responder's memory that a request names, if rights allow it.
    fn remote(&self, responder: u32, at: RemoteAddr, bytes: u64, needed: Access) -> Option<Piece> {
        let qp = self.qps.get(&responder)?;
        let registered = self.regions.get(&at.rkey)?;
        let may = registered.pd == qp.pd
            && registered.access.contains(needed)
            && qp.access.contains(needed);
        may.then(|| registered.piece(at.addr, bytes))?
    }

    /// Invalidates the key that the operation names; returns false if the region does not allow it.
    fn invalidates(&mut self, responder: u32, op: SendOp) -> bool {
        let SendOp::SendInvalidate(rkey) = op else { return true };
        let pd = self.qp(responder).pd;
        let registered = self.regions.get_mut(&rkey).filter(|registered| {
            registered.pd == pd && registered.access.contains(Access::REMOTE_INVALIDATE)
        });
        let Some(registered) = registered else { return false };
        registered.access -= Access::REMOTE | Access::REMOTE_INVALIDATE;
        true
    }

    fn refuse(&mut self, responder: u32, status: WcStatus) -> Taken {
        self.fail(responder, "a request of the peer was not allowed");
        Taken::Refused(status)
    }

    fn write_at(&mut self, responder: u32, at: RemoteAddr, data: &[u8]) -> Taken {
        if data.is_empty() {
            return Taken::Done(None);
        }
        match self.remote(responder, at, data.len() as u64, Access::REMOTE_WRITE) {
            Some(piece) => {
                scatter(&[piece], data);
                Taken::Done(None)
            }
            None => self.refuse(responder, WcStatus::RemoteAccess),
        }
    }

    fn fetch_at(&mut self, responder: u32, at: RemoteAddr, bytes: u64) -> Taken {
        if bytes == 0 {
            return Taken::Done(Some(Vec::new()));
        }
        match self.remote(responder, at, bytes, Access::REMOTE_READ) {
            Some(piece) => Taken::Done(Some(gather(&[piece]))),
            None => self.refuse(responder, WcStatus::RemoteAccess),
        }
    }

    fn change_at(
        &mut self,
        responder: u32,
        at: RemoteAddr,
        change: impl FnOnce(u64) -> u64,
    ) -> Taken {
        if !at.addr.is_multiple_of(8) {
            return self.refuse(responder, WcStatus::RemoteInvalidRequest);
        }
        let Some(piece) = self.remote(responder, at, 8, Access::REMOTE_ATOMIC) else {
            return self.refuse(responder, WcStatus::RemoteAccess);
        };
        let before = gather(std::slice::from_ref(&piece));
        let old = before.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        scatter(&[piece], &change(old).to_ne_bytes());
        Taken::Done(Some(before))
    }

    /// Completes the oldest receive with `data`, if there is any.
    fn deliver(&mut self, responder: u32, message: &Message, data: Option<&[u8]>) -> Taken {
        let qp = self.qp(responder);
        let Some(receive) = qp.recvs.pop_front() else {
            return Taken::NotReady(qp.min_rnr_timer());
        };
        let (bytes, solicited) = (message.bytes, message.solicited);
        let place = (receive.wr_id, receive.seq);
        let problem = match (receive.room(), data) {
            (_, None) => None,
            (None, _) => Some((WcStatus::LocalProtection, WcStatus::RemoteOperation)),
            (Some(room), _) if bytes > room => {
                Some((WcStatus::LocalLength, WcStatus::RemoteInvalidRequest))
            }
            (Some(_), Some(_)) if !self.invalidates(responder, message.op) => {
                Some((WcStatus::LocalProtection, WcStatus::RemoteAccess))
            }
            (Some(_), Some(_)) => None,
        };
        if let Some((ours, theirs)) = problem {
            self.complete_recv(responder, place, Err(ours), solicited);
            return self.refuse(responder, theirs);
        }
        let opcode = match data {
            Some(data) => {
                scatter(receive.pieces.as_deref().unwrap_or_default(), data);
                WcOpcode::Recv
            }
            None => WcOpcode::RecvWriteImm,
        };
        let plain = Success::plain(opcode, bytes);
        let success = if let SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) = message.op {
            plain.with_imm(Some(imm))
        } else if let SendOp::SendInvalidate(rkey) = message.op {
            plain.invalidating(rkey)
        } else {
            plain
        };
        self.complete_recv(responder, place, Ok(success), solicited);
        Taken::Done(None)
    }
}
