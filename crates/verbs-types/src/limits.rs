//! Checks of work requests against the limits of their queue pair.
use crate::{
    Destination, MAX_QKEY, Payload, PostFailure, QpState, RecvWr, SendOp, SendWr, Service,
};

/// The largest queue pair number and the largest packet sequence number.
pub const MAX_24_BITS: u32 = 0xff_ffff;

/// How much the queues of a queue pair hold (`ibv_qp_cap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpCapacity {
    /// Send requests outstanding at once.
    pub max_send_wr: u32,
    /// Receive requests outstanding at once.
    pub max_recv_wr: u32,
    /// Scatter-gather elements of a request.
    pub max_sge: u32,
    /// Bytes of inline data of a request.
    pub max_inline_bytes: u32,
}

/// Rules that every request of a queue pair must keep: sizes, and operations of its service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Send requests outstanding at once.
    pub max_send_wr: u32,
    /// Receive requests outstanding at once.
    pub max_recv_wr: u32,
    /// Scatter-gather elements of a request.
    pub max_sge: u32,
    /// Bytes of inline data of a request.
    pub max_inline_bytes: u32,
    /// Bytes of a message.
    pub max_message_bytes: u64,
    /// The service.
    pub service: Service,
    /// Operations that can be posted with elements, and inline: a bit each.
    with_sges: u16,
    with_inline: u16,
}

#[inline]
fn bit(op: &SendOp) -> u16 {
    1 << match op {
        SendOp::Write(_) => 0,
        SendOp::WriteImm(..) => 1,
        SendOp::Read(_) => 2,
        SendOp::Send => 3,
        SendOp::SendImm(_) => 4,
        SendOp::SendInvalidate(_) => 5,
        SendOp::SendTo(_) => 6,
        SendOp::SendImmTo(..) => 7,
        SendOp::CompareSwap { .. } => 8,
        SendOp::FetchAdd { .. } => 9,
    }
}

const WRITES: u16 = 0b11;
const READ: u16 = 1 << 2;
const SENDS: u16 = 0b11 << 3;
const SEND_INVALIDATE: u16 = 1 << 5;
const DATAGRAMS: u16 = 0b11 << 6;
const ATOMICS: u16 = 0b11 << 8;

impl Limits {
    /// Creates the limits of a queue pair of this service. `send_invalidate`: whether the device
    /// offers SEND with invalidate.
    pub fn new(
        service: Service,
        capacity: QpCapacity,
        max_message_bytes: u64,
        send_invalidate: bool,
    ) -> Self {
        let with_sges = match service {
            Service::Rc if send_invalidate => WRITES | READ | SENDS | ATOMICS | SEND_INVALIDATE,
            Service::Rc => WRITES | READ | SENDS | ATOMICS,
            Service::Uc => WRITES | SENDS,
            Service::Ud => DATAGRAMS,
        };
        Self {
            max_send_wr: capacity.max_send_wr,
            max_recv_wr: capacity.max_recv_wr,
            max_sge: capacity.max_sge,
            max_inline_bytes: capacity.max_inline_bytes,
            max_message_bytes,
            service,
            with_sges,
            with_inline: with_sges & !(READ | ATOMICS),
        }
    }

    /// Lowers the longest message, and with it the longest inline payload.
    #[must_use]
    pub fn with_message_bytes(mut self, most: u64) -> Self {
        self.max_message_bytes = self.max_message_bytes.min(most);
        self.max_inline_bytes = self.max_inline_bytes.min(u32::try_from(most).unwrap_or(u32::MAX));
        self
    }

    /// Checks a send request for a queue pair in this state with `outstanding` sends. The caller
    /// looks up the regions that it names.
    ///
    /// # Errors
    /// The first rule that the request breaks.
    #[inline]
    pub fn check_send(
        &self,
        state: QpState,
        outstanding: u64,
        wr: &SendWr<'_>,
    ) -> Result<(), PostFailure> {
        self.check_send_room(state, outstanding)?;
        self.check_operation(wr)?;
        match wr.payload {
            Payload::Inline(data) => self.check_inline(data.len()),
            Payload::Sges(sges) => {
                self.check_sges(sges.len())?;
                self.check_message(wr.payload.bytes())
            }
        }
    }

    /// Checks a receive, as [`Limits::check_send`] does a send.
    ///
    /// # Errors
    /// The first rule that the request breaks.
    #[inline]
    pub fn check_recv(
        &self,
        state: QpState,
        outstanding: u64,
        wr: &RecvWr<'_>,
    ) -> Result<(), PostFailure> {
        self.check_recv_room(state, outstanding)?;
        self.check_sges(wr.sges.len())
    }

    /// Checks the state and the room of the send queue alone.
    ///
    /// # Errors
    /// [`PostFailure::State`], [`PostFailure::QueueFull`].
    #[inline]
    pub fn check_send_room(&self, state: QpState, outstanding: u64) -> Result<(), PostFailure> {
        if !state.takes_send() {
            return Err(PostFailure::State(state));
        }
        check_room(outstanding, self.max_send_wr)
    }

    /// Checks the state and the room of the receive queue alone.
    ///
    /// # Errors
    /// [`PostFailure::State`], [`PostFailure::QueueFull`].
    #[inline]
    pub fn check_recv_room(&self, state: QpState, outstanding: u64) -> Result<(), PostFailure> {
        if !state.takes_recv() {
            return Err(PostFailure::State(state));
        }
        check_room(outstanding, self.max_recv_wr)
    }

    /// Returns whether the queue pair has the operation, and the operation can have this payload.
    #[inline]
    fn check_operation(&self, wr: &SendWr<'_>) -> Result<(), PostFailure> {
        let allowed = match wr.payload {
            Payload::Inline(_) => self.with_inline,
            Payload::Sges(_) => self.with_sges,
        };
        let bit = bit(&wr.op);
        if allowed & bit == 0 {
            return Err(self.refusal(&wr.op));
        }
        if bit & (ATOMICS | DATAGRAMS) != 0 {
            return check_special(wr);
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self, op: &SendOp) -> PostFailure {
        let service = self.service;
        if !op.exists_on(service) {
            return PostFailure::Service(service);
        }
        if self.with_sges & bit(op) == 0 {
            return PostFailure::NotOffered("SEND with invalidate (Caps::send_invalidate)");
        }
        PostFailure::Payload("a READ or an atomic cannot be inline")
    }

    #[inline]
    fn check_sges(&self, asked: usize) -> Result<(), PostFailure> {
        if asked <= self.max_sge as usize {
            return Ok(());
        }
        Err(PostFailure::TooManySges { asked, limit: self.max_sge })
    }

    #[inline]
    fn check_inline(&self, asked: usize) -> Result<(), PostFailure> {
        if asked <= self.max_inline_bytes as usize {
            return Ok(());
        }
        Err(PostFailure::InlineTooLong { asked, limit: self.max_inline_bytes })
    }

    #[inline]
    fn check_message(&self, asked: u64) -> Result<(), PostFailure> {
        if asked <= self.max_message_bytes {
            return Ok(());
        }
        Err(PostFailure::MessageTooLong { asked, limit: self.max_message_bytes })
    }
}

#[inline]
fn check_room(outstanding: u64, capacity: u32) -> Result<(), PostFailure> {
    if outstanding < u64::from(capacity) {
        return Ok(());
    }
    Err(PostFailure::QueueFull(capacity))
}

/// Checks the rules that only atomics and datagrams have.
fn check_special(wr: &SendWr<'_>) -> Result<(), PostFailure> {
    match wr.op.destination() {
        Some(to) => check_destination(to),
        None if wr.payload.bytes() != 8 => {
            Err(PostFailure::Payload("an atomic needs exactly eight local bytes"))
        }
        None => Ok(()),
    }
}

fn check_destination(to: &Destination) -> Result<(), PostFailure> {
    let why = if to.qpn > MAX_24_BITS {
        "a queue pair number has 24 bits"
    } else if to.qkey > MAX_QKEY {
        "a Q_Key of a program has 31 bits"
    } else {
        return Ok(());
    };
    Err(PostFailure::Destination(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteAddr;

    #[test]
    fn every_operation_has_a_bit_of_its_own() {
        let remote = RemoteAddr::default();
        let to = Destination { ah: 0, qpn: MAX_24_BITS, qkey: MAX_QKEY };
        let bits = [
            SendOp::Write(remote),
            SendOp::WriteImm(remote, 1),
            SendOp::Read(remote),
            SendOp::Send,
            SendOp::SendImm(1),
            SendOp::SendInvalidate(1),
            SendOp::SendTo(to),
            SendOp::SendImmTo(to, 1),
            SendOp::CompareSwap { remote, compare: 1, swap: 2 },
            SendOp::FetchAdd { remote, add: 1 },
        ]
        .map(|op| bit(&op));
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones(), 10);
        assert_eq!(bits.map(u16::count_ones), [1; 10]);
    }
}
