//! Posting requests.

use super::{Halves, PostError, Qp, QpState};
use crate::WcStatus;
use crate::completion::{Completion, Queue};
use crate::config::Service;
use crate::work::{Payload, RecvWr, SendOp, SendWr};

/// The longest message of the standard (IBTA volume 1, 9.7.8).
const MAX_MESSAGE_BYTES: u64 = 1 << 31;

/// PSNs of one message, so that distances stay clear of half the number space. Only at a path MTU of
/// 256 this is less than [`MAX_MESSAGE_BYTES`].
const MAX_MESSAGE_PACKETS: u64 = 1 << 22;

impl Qp {
    /// Posts a send request. The driver has checked the local keys, and keeps the memory registered
    /// until the request completes. In the error state it is taken and flushed at once.
    ///
    /// # Errors
    /// When the state, the service type or a limit does not allow it; nothing was posted.
    pub fn post_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if !matches!(self.state, QpState::Rts | QpState::Sqd | QpState::Err) {
            return Err(PostError::State(self.state));
        }
        self.check_send(wr)?;
        if self.state == QpState::Err {
            self.completions.push_back(flushed(wr.wr_id, Queue::Send));
            return Ok(());
        }
        match &mut self.halves {
            Halves::Rc { requester, .. } => requester.post(wr),
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.post(wr),
        }
        Ok(())
    }

    /// Posts a receive. The driver has checked the local keys, and keeps the memory registered until
    /// it completes. In the error state it is taken and flushed at once.
    ///
    /// # Errors
    /// When the state or a limit does not allow it; nothing was posted.
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.state == QpState::Reset {
            return Err(PostError::State(self.state));
        }
        self.check_sges(wr.sges.len())?;
        check_full(self.recv_queue_len(), self.config.max_recv_wr)?;
        if self.state == QpState::Err {
            self.completions.push_back(flushed(wr.wr_id, Queue::Recv));
            return Ok(());
        }
        match &mut self.halves {
            Halves::Rc { responder, .. } => responder.post(wr),
            Halves::Uc { receiver, .. } => receiver.receives_mut().post(wr),
            Halves::Ud { receiver, .. } => receiver.receives_mut().post(wr),
        }
        Ok(())
    }

    fn check_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        check_full(self.send_queue_len(), self.config.max_send_wr)?;
        self.check_payload(&wr.payload)?;
        self.check_operation(wr)?;
        let bytes = wr.payload.bytes();
        let limit = self.max_message_bytes();
        if bytes > limit {
            return Err(PostError::MessageTooLong { bytes, limit });
        }
        check_atomic(wr, bytes)
    }

    fn check_payload(&self, payload: &Payload<'_>) -> Result<(), PostError> {
        match payload {
            Payload::Sges(sges) => self.check_sges(sges.len()),
            Payload::Inline(data) if data.len() > self.config.max_inline_bytes => {
                Err(PostError::InlineTooLong {
                    bytes: data.len(),
                    limit: self.config.max_inline_bytes,
                })
            }
            Payload::Inline(_) => Ok(()),
        }
    }

    fn check_sges(&self, count: usize) -> Result<(), PostError> {
        let limit = self.config.max_sge;
        if count > limit {
            return Err(PostError::TooManySges { count, limit });
        }
        Ok(())
    }

    fn check_operation(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let inline = matches!(wr.payload, Payload::Inline(_));
        let possible = match (wr.op, self.config.service) {
            (SendOp::Send | SendOp::SendImm(_), _) => true,
            (SendOp::Write(_) | SendOp::WriteImm(..), service) => service != Service::Ud,
            (SendOp::SendInvalidate(_), service) => service == Service::Rc,
            (SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, service) => {
                service == Service::Rc && !inline
            }
        };
        if !possible {
            return Err(PostError::Unsupported(wr.op));
        }
        if self.config.service == Service::Ud && wr.destination.is_none() {
            return Err(PostError::NoDestination);
        }
        Ok(())
    }

    fn max_message_bytes(&self) -> u64 {
        match &self.halves {
            Halves::Ud { sender, .. } => sender.mtu(),
            Halves::Uc { sender, .. } => longest(sender.mtu()),
            Halves::Rc { requester, .. } => longest(requester.mtu()),
        }
    }
}

/// The longest message with packets of this size.
fn longest(mtu: u64) -> u64 {
    MAX_MESSAGE_BYTES.min(mtu * MAX_MESSAGE_PACKETS)
}

fn check_atomic(wr: &SendWr<'_>, bytes: u64) -> Result<(), PostError> {
    let (SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. }) = wr.op else {
        return Ok(());
    };
    let addr = remote.addr;
    if bytes != 8 || !addr.is_multiple_of(8) {
        return Err(PostError::Atomic { bytes, addr });
    }
    Ok(())
}

fn check_full(len: usize, limit: usize) -> Result<(), PostError> {
    if len >= limit {
        return Err(PostError::QueueFull { limit });
    }
    Ok(())
}

pub(crate) fn flushed(wr_id: u64, queue: Queue) -> Completion {
    Completion {
        wr_id,
        queue,
        result: Err(WcStatus::Flushed),
    }
}
