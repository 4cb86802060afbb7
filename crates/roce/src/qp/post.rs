//! Posting requests.
use super::{Halves, Qp};
use crate::completion::{Completion, Queue};
use crate::config::Config;
use crate::wire::PathMtu;
use crate::wqe::{RecvWqe, SendWqe};
use catchment_verbs_types::{Limits, PostFailure, QpCapacity, QpState, RecvWr, SendWr, Service};

/// Maximum message length of the standard (IBTA volume 1, 9.7.8).
const MAX_MESSAGE_BYTES: u64 = 1 << 31;

/// Maximum PSNs of one message, so that distances stay below half the number space. Only at a path
/// MTU of 256 this is less than [`MAX_MESSAGE_BYTES`].
const MAX_MESSAGE_PACKETS: u64 = 1 << 22;

impl Qp {
    /// Returns the limits of requests. Before RTR, when no path MTU is known, they allow the
    /// longest message of the standard.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Posts a send request. The driver has checked the local keys, and keeps the memory registered
    /// until the request completes. In the error state it is accepted and flushed at once.
    ///
    /// # Errors
    /// When the state, the service type or a limit does not allow it; nothing is posted.
    pub fn post_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        self.limits.check_send(self.state, self.send_queue_len() as u64, wr)?;
        if wr.op.is_misaligned_atomic() {
            return Err(PostFailure::Payload(
                "the remote address of an atomic must be a multiple of eight",
            ));
        }
        self.take_send(SendWqe::new(wr));
        Ok(())
    }

    /// Posts an element made from a request within [`Qp::limits`]. It is moved, not copied.
    ///
    /// # Errors
    /// When the state does not allow it or the queue is full; nothing is posted.
    pub fn post_send_wqe(&mut self, wqe: SendWqe) -> Result<(), PostFailure> {
        self.limits.check_send_room(self.state, self.send_queue_len() as u64)?;
        debug_assert!(wqe.op.exists_on(self.config.service), "{:?}", wqe.op);
        self.take_send(wqe);
        Ok(())
    }

    /// Posts a receive. The driver has checked the local keys, and keeps the memory registered
    /// until it completes. In the error state it is accepted and flushed at once.
    ///
    /// # Errors
    /// When the state or a limit does not allow it; nothing is posted.
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostFailure> {
        self.limits.check_recv(self.state, self.recv_queue_len() as u64, wr)?;
        self.take_recv(RecvWqe::new(wr));
        Ok(())
    }

    /// Posts an element made from a receive within [`Qp::limits`].
    ///
    /// # Errors
    /// When the state does not allow it or the queue is full; nothing is posted.
    pub fn post_recv_wqe(&mut self, wqe: RecvWqe) -> Result<(), PostFailure> {
        self.limits.check_recv_room(self.state, self.recv_queue_len() as u64)?;
        self.take_recv(wqe);
        Ok(())
    }

    fn take_send(&mut self, wqe: SendWqe) {
        if matches!(self.state, QpState::Sqe | QpState::Err) {
            self.completions.push_back(Completion::flushed(wqe.wr_id, Queue::Send));
            return;
        }
        if self.send_queue_len() == 0 {
            self.pacer.resume();
        }
        match &mut self.halves {
            Halves::Rc { requester, .. } => requester.post(wqe),
            Halves::Uc { sender, .. } | Halves::Ud { sender, .. } => sender.post(wqe),
        }
    }

    fn take_recv(&mut self, wqe: RecvWqe) {
        if self.state == QpState::Err {
            self.completions.push_back(Completion::flushed(wqe.wr_id, Queue::Recv));
            return;
        }
        self.halves.receives_mut().post(wqe);
    }
}

/// Returns the limits of a queue pair whose path MTU is not known yet.
pub(super) fn limits(config: &Config) -> Limits {
    let capacity = QpCapacity {
        max_send_wr: config.max_send_wr,
        max_recv_wr: config.max_recv_wr,
        max_sge: config.max_sge,
        max_inline_bytes: config.max_inline_bytes,
    };
    Limits::new(config.service, capacity, MAX_MESSAGE_BYTES, true)
}

/// Returns the limits of a queue pair that sends packets of this size.
pub(super) fn connected(config: &Config, path_mtu: PathMtu) -> Limits {
    let mtu = path_mtu.bytes() as u64;
    limits(config).with_message_bytes(match config.service {
        Service::Ud => mtu,
        Service::Rc | Service::Uc => mtu * MAX_MESSAGE_PACKETS,
    })
}
